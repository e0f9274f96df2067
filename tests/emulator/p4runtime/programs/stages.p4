// Tables in ingress and in egress, entries that the program brings along, roles, meters of a single rate, a selector.
#include <core.p4>
#include <v1model.p4>

header value_t {
    bit<8> key;
    bit<8> first;
    bit<8> second;
    bit<8> third;
    bit<8> color;
}

struct headers_t {
    value_t value;
}

struct metadata_t {
    bit<2> color;
}

parser StagesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.value);
        transition accept;
    }
}

control StagesVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control StagesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(1, CounterType.packets) torn;
    @p4runtime_role("meterer") @single_rate_three_color meter(2, MeterType.packets) paced;
    direct_counter(CounterType.packets_and_bytes) path_hits;
    @two_rate_three_color direct_meter<bit<2>>(MeterType.packets) limit;
    action_selector(HashAlgorithm.identity, 16, 8) paths;

    direct_counter(CounterType.packets) constant_hits;

    action set_first(bit<8> value) { hdr.value.first = value; }
    action set_second(bit<8> value) { hdr.value.second = value; }
    action send(bit<9> port) { standard.egress_spec = port; }
    action limited(bit<9> port) {
        limit.read(meta.color);
        standard.egress_spec = port;
    }

    table firsts {
        key = { hdr.value.key : exact; }
        actions = { set_first; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    @p4runtime_role("second") table seconds {
        key = { hdr.value.key : exact; }
        actions = { set_second; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table initial {
        key = { hdr.value.key : ternary; }
        actions = { limited; NoAction; }
        entries = {
            0x80 &&& 0xC0 : limited(2);
            0x80 &&& 0x80 : limited(3);
        }
        default_action = NoAction();
        meters = limit;
        size = 8;
    }
    table constant {
        key = { hdr.value.key : exact; }
        actions = { send; NoAction; }
        const entries = {
            7 : send(4);
        }
        const default_action = NoAction();
        counters = constant_hits;
    }
    table balanced {
        key = { hdr.value.key : exact; hdr.value.third : selector; }
        actions = { send; NoAction; }
        implementation = paths;
        counters = path_hits;
        size = 8;
    }
    apply {
        standard.egress_spec = 1;
        firsts.apply();
        seconds.apply();
        if (hdr.value.first != hdr.value.second) {
            torn.count(0);
        }
        initial.apply();
        constant.apply();
        balanced.apply();
        if (hdr.value.key == 9) {
            paced.execute_meter<bit<2>>(1, meta.color);
        }
        hdr.value.color = (bit<8>)meta.color;
    }
}

control StagesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action set_third(bit<8> value) { hdr.value.third = value; }
    table thirds {
        key = { hdr.value.key : exact; }
        actions = { set_third; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    apply {
        thirds.apply();
    }
}

control StagesCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control StagesDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.value);
    }
}

V1Switch(StagesParser(), StagesVerify(), StagesIngress(), StagesEgress(), StagesCompute(), StagesDeparser()) main;
