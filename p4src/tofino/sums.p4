/*
 * The sums that a slot holds: the reduced header fields, and the lanes.
 *
 *             RESTART            ADD                                   REPLAY              REST
 *   packet ──▶ slot    packet + slot ──▶ slot and half of packet    slot ──▶ half     slot ──▶ the other half
 *
 * A register holds two numbers of a slot, and both change in a pass, but it hands out only one: the first of each pair when a
 * packet is added or asks again, the second in the pass after that (again). After RESTART the packet carries what the slot holds.
 *
 * Each table asks what `gather` has found, not what somebody makes of it: that saves a stage, and each stage has four registers.
 *
 *   turn      claimed       children before           what is done
 *   first     1: newer      –                         restart
 *   first     0             none: it is older         nothing
 *   first     0             with the packet's         replay
 *   first     0             without it                add
 *   second    1: there      –                         rest
 *   second    0: gone       –                         nothing
 */

#define SEEN(i) (Turn.FIRST, 0, 32w1 << i &&& 32w1 << i, 32w1 << i &&& 32w1 << i): replay();
#define EACH_CHILD(F) FIRST_TEN(F) TEN(F, 1) TEN(F, 2) F(30) F(31)

#define SUM_TABLE(table_name) \
    table table_name { \
        key = { \
            turn:     ternary; \
            claimed:  ternary; \
            children: ternary; \
            child:    ternary; \
        } \
        actions = { restart; add; replay; rest; NoAction; } \
        const default_action = NoAction; \
        const entries = { \
            (Turn.FIRST,  1, _, _): restart(); \
            (Turn.SECOND, 1, _, _): rest(); \
            (Turn.FIRST,  0, 0, _): NoAction(); \
            EACH_CHILD(SEEN) \
            (Turn.FIRST,  0, _, _): add(); \
        } \
        size = 64; \
    }

struct bounds_t {
    bit<16> window;
    bit<16> exponent;
}

struct weights_t {
    bit<32> weight;
    bit<32> check;
}

/* The window is min-reduced and the exponent max-reduced; the window comes out first. */
control BoundSums(
    inout aggregation_t aggregation, in bit<16> index, in Turn turn, in bit<1> claimed, in bit<32> children, in bit<32> child,
    in bit<16> exponent)
{
    @id(WINDOW_REGISTER_ID)
    Register<bounds_t, bit<16>>(AGGREGATION_SLOTS) window;

    RegisterAction<bounds_t, bit<16>, bit<16>>(window) restart_bounds = {
        void apply(inout bounds_t held) {
            held.window = aggregation.window;
            held.exponent = exponent;
        }
    };
    RegisterAction<bounds_t, bit<16>, bit<16>>(window) add_bounds = {
        void apply(inout bounds_t held, out bit<16> sum) {
            held.window = min(held.window, aggregation.window);
            held.exponent = max(held.exponent, exponent);
            sum = held.window;
        }
    };
    RegisterAction<bounds_t, bit<16>, bit<16>>(window) replay_bounds = {
        void apply(inout bounds_t held, out bit<16> sum) {
            sum = held.window;
        }
    };
    RegisterAction<bounds_t, bit<16>, bit<16>>(window) rest_of_bounds = {
        void apply(inout bounds_t held, out bit<16> sum) {
            sum = held.exponent;
        }
    };

    action restart() { restart_bounds.execute(index); }
    action add() { aggregation.window = add_bounds.execute(index); }
    action replay() { aggregation.window = replay_bounds.execute(index); }
    action rest() {
        bit<16> largest = rest_of_bounds.execute(index);
        aggregation.exponent = largest[7:0];
    }

    SUM_TABLE(sums)

    apply {
        sums.apply();
    }
}

/* Both add up; the weight comes out first. */
control WeightSums(
    inout aggregation_t aggregation, in bit<16> index, in Turn turn, in bit<1> claimed, in bit<32> children, in bit<32> child)
{
    @id(WEIGHT_REGISTER_ID)
    Register<weights_t, bit<16>>(AGGREGATION_SLOTS) weight;

    RegisterAction<weights_t, bit<16>, bit<32>>(weight) restart_weights = {
        void apply(inout weights_t held) {
            held.weight = aggregation.weight;
            held.check = aggregation.check;
        }
    };
    RegisterAction<weights_t, bit<16>, bit<32>>(weight) add_weights = {
        void apply(inout weights_t held, out bit<32> sum) {
            held.weight = held.weight + aggregation.weight;
            held.check = held.check + aggregation.check;
            sum = held.weight;
        }
    };
    RegisterAction<weights_t, bit<16>, bit<32>>(weight) replay_weights = {
        void apply(inout weights_t held, out bit<32> sum) {
            sum = held.weight;
        }
    };
    RegisterAction<weights_t, bit<16>, bit<32>>(weight) rest_of_weights = {
        void apply(inout weights_t held, out bit<32> sum) {
            sum = held.check;
        }
    };

    action restart() { restart_weights.execute(index); }
    action add() { aggregation.weight = add_weights.execute(index); }
    action replay() { aggregation.weight = replay_weights.execute(index); }
    action rest() { aggregation.check = rest_of_weights.execute(index); }

    SUM_TABLE(sums)

    apply {
        sums.apply();
    }
}

/* Flags are or-ed, in the packet too: what is emitted again tells everyone on the way that it was asked for again. */
control FlagSums(
    inout aggregation_t aggregation, in bit<16> index, in Turn turn, in bit<1> claimed, in bit<32> children, in bit<32> child)
{
    @id(FLAGS_REGISTER_ID)
    Register<bit<8>, bit<16>>(AGGREGATION_SLOTS) flags;

    bit<8> held_flags = 0;

    RegisterAction<bit<8>, bit<16>, bit<8>>(flags) restart_flags = {
        void apply(inout bit<8> held) {
            held = aggregation.flags;
        }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(flags) add_flags = {
        void apply(inout bit<8> held, out bit<8> sum) {
            held = held | aggregation.flags;
            sum = held;
        }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(flags) replay_flags = {
        void apply(inout bit<8> held, out bit<8> sum) {
            sum = held;
        }
    };

    action restart() { restart_flags.execute(index); }
    action add() { held_flags = add_flags.execute(index); }
    action replay() { held_flags = replay_flags.execute(index); }
    action rest() {}          // the packet has them since the pass before

    SUM_TABLE(sums)

    apply {
        sums.apply();
        aggregation.flags = aggregation.flags | held_flags;
    }
}

/* Reads and writes the lanes of the packet, and nothing else. */
struct pair_t {
    bit<32> first;
    bit<32> second;
}

#define LANE_PAIR(i, j) \
control LanePair_##i(inout lanes_t lanes, in bit<16> index, in Turn turn, in bit<1> claimed, in bit<32> children, in bit<32> child) { \
    @id(LANE_REGISTER_ID(i)) \
    Register<pair_t, bit<16>>(AGGREGATION_SLOTS) lane; \
    RegisterAction<pair_t, bit<16>, bit<32>>(lane) restart_pair = { \
        void apply(inout pair_t held) { \
            held.first = lanes.lane_##i; \
            held.second = lanes.lane_##j; \
        } \
    }; \
    RegisterAction<pair_t, bit<16>, bit<32>>(lane) add_pair = { \
        void apply(inout pair_t held, out bit<32> sum) { \
            held.first = held.first + lanes.lane_##i; \
            held.second = held.second + lanes.lane_##j; \
            sum = held.first; \
        } \
    }; \
    RegisterAction<pair_t, bit<16>, bit<32>>(lane) replay_pair = { \
        void apply(inout pair_t held, out bit<32> sum) { \
            sum = held.first; \
        } \
    }; \
    RegisterAction<pair_t, bit<16>, bit<32>>(lane) rest_of_pair = { \
        void apply(inout pair_t held, out bit<32> sum) { \
            sum = held.second; \
        } \
    }; \
    action restart() { restart_pair.execute(index); } \
    action add() { lanes.lane_##i = add_pair.execute(index); } \
    action replay() { lanes.lane_##i = replay_pair.execute(index); } \
    action rest() { lanes.lane_##j = rest_of_pair.execute(index); } \
    SUM_TABLE(sums) \
    apply { \
        if (lanes.isValid()) { \
            sums.apply(); \
        } \
    } \
}

#define EACH_PAIR(F) \
    F(0, 1) F(2, 3) F(4, 5) F(6, 7) F(8, 9) F(10, 11) F(12, 13) F(14, 15) F(16, 17) F(18, 19) F(20, 21) F(22, 23) F(24, 25) \
    F(26, 27) F(28, 29) F(30, 31)

EACH_PAIR(LANE_PAIR)

control HeaderSums(
    inout aggregation_t aggregation, in bit<16> index, in Turn turn, in bit<1> claimed, in bit<32> children, in bit<32> child,
    in bit<16> exponent)
{
    BoundSums() bounds;
    WeightSums() weights;
    FlagSums() all_flags;

    apply {
        bounds.apply(aggregation, index, turn, claimed, children, child, exponent);
        weights.apply(aggregation, index, turn, claimed, children, child);
        all_flags.apply(aggregation, index, turn, claimed, children, child);
    }
}

control LaneSums(
    inout lanes_t lanes, in bit<16> index, in Turn turn, in bit<1> claimed, in bit<32> children, in bit<32> child)
{
#define PAIR_INSTANCE(i, j) LanePair_##i() lane_##i;
    EACH_PAIR(PAIR_INSTANCE)

    apply {
#define APPLY_PAIR(i, j) lane_##i.apply(lanes, index, turn, claimed, children, child);
        EACH_PAIR(APPLY_PAIR)
    }
}
