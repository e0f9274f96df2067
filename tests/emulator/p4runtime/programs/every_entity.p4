// Every kind of P4Runtime entity once, each in its smallest form. Not a useful switch: packets of any kind go to the CPU.

#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<1> is_clone;
    bit<70> stamp;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<3> queue;
    bit<4> _pad;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers_t {
    packet_out_t packet_out;
    packet_in_t packet_in;
    ethernet_t ethernet;
}

struct metadata_t {
    bit<100> wide;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            510: from_cpu;
            default: ethernet;
        }
    }
    state from_cpu {
        packet.extract(hdr.packet_out);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control MainIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<48>>(8) last_seen;
    register<int<16>>(4) levels;
    register<bit<100>>(2) wide_values;
    counter(6, CounterType.packets_and_bytes) ports;
    direct_counter(CounterType.packets_and_bytes) hits;
    action_profile(16) next_hops;
    action_selector(HashAlgorithm.crc32, 16, 16) paths;

    action drop() { mark_to_drop(standard); }
    action forward(bit<9> port) { standard.egress_spec = port; }
    action rewrite(bit<9> port, bit<48> dst, bit<100> wide) {
        standard.egress_spec = port;
        hdr.ethernet.dst = dst;
        meta.wide = wide;
    }
    action only_default() { mark_to_drop(standard); }

    table exact_table {
        key = { hdr.ethernet.dst: exact; hdr.ethernet.type: exact; }
        actions = { forward; rewrite; @defaultonly only_default; @tableonly drop; }
        default_action = only_default();
        counters = hits;
        size = 20000;
    }
    table lpm_table {
        key = { hdr.ethernet.dst: lpm; }
        actions = { forward; drop; NoAction; }
        const default_action = drop();
        size = 4;
    }
    table mixed_table {
        key = {
            hdr.ethernet.dst: ternary;
            hdr.ethernet.type: range;
            standard.ingress_port: optional;
            hdr.ethernet.src: exact;
        }
        actions = { forward; drop; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table const_table {
        key = { hdr.ethernet.type: exact; }
        actions = { forward; NoAction; }
        const entries = {
            0x800: forward(1);
            0x86dd: forward(2);
        }
        default_action = NoAction();
    }
    table keyless_table {
        key = {}
        actions = { forward; NoAction; }
        default_action = NoAction();
    }
    table profile_table {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; NoAction; }
        implementation = next_hops;
        size = 16;
    }
    table selector_table {
        key = { hdr.ethernet.dst: exact; hdr.ethernet.src: selector; }
        actions = { forward; drop; NoAction; }
        implementation = paths;
        size = 16;
    }

    apply {
        exact_table.apply();
        lpm_table.apply();
        mixed_table.apply();
        const_table.apply();
        keyless_table.apply();
        profile_table.apply();
        selector_table.apply();
        ports.count(0);
        last_seen.write(0, standard.ingress_global_timestamp);
        levels.write(0, (int<16>) -1);
        wide_values.write(0, meta.wide);
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
        } else {
            standard.egress_spec = 510;
        }
    }
}

control MainEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.packet_out.setInvalid();
        if (standard.egress_port == 510) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.is_clone = 0;
            hdr.packet_in.stamp = (bit<70>) standard.packet_length;
        }
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
    }
}

V1Switch(Parse(), Verify(), MainIngress(), MainEgress(), Update(), Deparse()) main;
