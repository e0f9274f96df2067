/*
 * Classification of samples by a decision forest that the control plane loads as table entries.
 *
 *   model number ─models─▶ bank ─feature_0 … feature_63─▶ codes ─tree_0 … tree_15─▶ ballots ─count─▶ class ─▶ back to the sender
 *
 * `feature_i` turns a value into a thermometer code: one bit for each threshold of each tree, set if the value is above it.
 * `tree_i` matches its tree's part of the codes against the leaves' conditions, one row a leaf; exactly one matches, and votes.
 * Of classes with equally many votes the first wins, as in NumPy's argmax.
 *
 * Reads and writes ipv4, udp, classification; reads features; writes meta.fate, meta.drop_reason and the flow's ports.
 *
 * Control plane: two models have room, one in each bank. A new one is written into the free bank, then `models` changes to it, then
 * the old one's rows go, trees' first: a packet that finds rows missing gets fewer votes than `trees`, and the answer
 * UNKNOWN_MODEL in place of a class. `ballot` of a vote has a one in its class's byte.
 */

control Inference(inout headers_t hdr, inout metadata_t meta) {
    bit<1> bank = 0;
    bit<8> trees = 0;               // that must vote
    bit<8> missing = 0;             // of them, that have not
    bit<ALL_CODES> codes = 0;       // tree i's from bit i * CODE_BITS on
    bit<ALL_CLASSES> ballots = 0;   // class i's votes from bit i * CLASS_BITS on
    bit<16> votes = 0;              // of one class, and 15 - that class
    bit<16> best = 0;               // the largest of these

    @id(SERVE_ACTION_ID)
    action serve(bit<1> in_bank, bit<32> model, bit<8> n_trees) {
        bank = in_bank;
        hdr.classification.model = model;
        trees = n_trees;
        missing = n_trees;
    }

    @id(MODELS_TABLE_ID)
    table models {
        key = { hdr.classification.model: exact @name("model"); }
        actions = { serve; @defaultonly NoAction; }
        const default_action = NoAction;
        size = MODELS;
    }

    @id(ENCODE_ACTION_ID)
    action encode(bit<ALL_CODES> above) {
        codes = codes | above;
    }

#define FEATURE_TABLE(i) \
    @id(FEATURE_TABLE_ID(i)) \
    table feature_##i { \
        key = { bank: exact @name("bank"); hdr.features.feature_##i: range @name("value"); } \
        actions = { encode; @defaultonly NoAction; } \
        const default_action = NoAction; \
        size = INTERVALS; \
    }
    EACH_FEATURE(FEATURE_TABLE)

    @id(VOTE_ACTION_ID)
    action vote(bit<ALL_CLASSES> ballot) {
        ballots = ballots + ballot;
        missing = missing - 1;
    }

#define TREE_TABLE(i) \
    @id(TREE_TABLE_ID(i)) \
    table tree_##i { \
        key = { \
            bank:                                               exact @name("bank"); \
            codes[i * CODE_BITS + CODE_BITS - 1:i * CODE_BITS]: ternary @name("code"); \
        } \
        actions = { vote; @defaultonly NoAction; } \
        const default_action = NoAction; \
        size = LEAVES; \
    }
    EACH_TREE(TREE_TABLE)

    /* The larger of two numbers is what it exceeds the other by, on top of the other. */
#define COUNT_CLASS(i) \
    votes = ballots[i * CLASS_BITS + CLASS_BITS - 1:i * CLASS_BITS] ++ (8w15 - 8w##i); \
    best = (best |-| votes) + votes;
    @id(COUNT_VOTES_ACTION_ID)
    action count_votes() {
        EACH_CLASS(COUNT_CLASS)
    }

    @id(ANSWER_ACTION_ID)
    action answer(bit<8> status) {
        ipv4_address_t asker = hdr.ipv4.src_addr;
        bit<16> port = hdr.udp.src_port;
        hdr.classification.status = status;
        hdr.classification.class_index = 15 - best[7:0];
        hdr.classification.votes = best[15:8];
        hdr.classification.trees = trees;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = asker;
        hdr.ipv4.ttl = DEFAULT_TTL;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = port;
        hdr.udp.checksum = 0;       // none (RFC 768)
        meta.src_port = CLASSIFICATION_PORT;
        meta.dst_port = port;
    }

#define APPLY_FEATURE(i) feature_##i.apply();
#define APPLY_TREE(i) tree_##i.apply();
    apply {
        if (models.apply().hit) {
            EACH_FEATURE(APPLY_FEATURE)
            EACH_TREE(APPLY_TREE)
            count_votes();
        } else {
            missing = 1;
        }
        if (missing == 0) {
            answer(CLASSIFIED);
        } else {
            best = 15;
            answer(UNKNOWN_MODEL);
        }
    }
}
