// Meters, digests, value sets, packets that come again, clones that keep metadata, random numbers, assertions.
#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<8>  what;
    bit<8>  count;   // times that the packet came again
    bit<16> value;
    bit<32> seen;    // what metadata held in egress, or ingress again
}

header pair_t {
    bit<4>  kind;
    bit<12> number;
}

struct headers_t {
    order_t order;
    pair_t  pair;
}

struct metadata_t {
    @field_list(1, 2) bit<16> kept;
    @field_list(2)    bit<7>  also;
    bit<16> lost;
    bit<2>  color;
}

struct learned_t {
    bit<8>  what;
    bit<16> value;
    bit<9>  port;
    bit<80> wide;
}

struct member_t {
    bit<4>  kind;
    bit<12> number;
}

parser ExternsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(3) numbers;
    value_set<member_t>(2) members;

    state start {
        packet.extract(hdr.order);
        transition select(hdr.order.value) {
            numbers: parse_pair;
            default: accept;
        }
    }
    state parse_pair {
        packet.extract(hdr.pair);
        transition select(hdr.pair.kind, hdr.pair.number) {
            members: mark;
            default: accept;
        }
    }
    state mark {
        meta.lost = 0xABCD;
        transition accept;
    }
}

control ExternsVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ExternsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_meter<bit<2>>(MeterType.packets) each;
    direct_counter(CounterType.packets_and_bytes) hits;
    meter(4, MeterType.bytes) shared;

    action send(bit<9> port) {
        standard.egress_spec = port;
    }
    action metered(bit<9> port) {
        each.read(meta.color);
        hits.count();
        standard.egress_spec = port;
    }
    table flows {
        key = { hdr.order.value : exact; }
        actions = { metered; NoAction; }
        default_action = NoAction();
        meters = each;
        counters = hits;
        support_timeout = true;
        size = 8;
    }
    table plain {
        key = { hdr.order.value : exact; }
        actions = { send; }
        default_action = send(1);
        size = 4;
    }
    apply {
        send(1);
        hdr.order.seen = (bit<32>)meta.kept << 16 | (bit<32>)meta.lost;
        if (hdr.order.what == 1) {
            flows.apply();
            hdr.order.count = (bit<8>)meta.color;
        } else if (hdr.order.what == 2) {
            shared.execute_meter<bit<2>>((bit<32>)hdr.order.value, meta.color);
            hdr.order.count = (bit<8>)meta.color;
        } else if (hdr.order.what == 3) {
            digest<learned_t>(1, {hdr.order.what, hdr.order.value, standard.ingress_port, 80w0x123456789ABCDEF01234});
        } else if (hdr.order.what == 4) {
            if (standard.instance_type == 0) {
                meta.kept = hdr.order.value;
                meta.lost = hdr.order.value;
                hdr.order.count = 99;  // forgotten: the packet comes again as it was received
                resubmit_preserving_field_list(1);
            } else {
                hdr.order.count = (bit<8>)standard.instance_type;
                hdr.order.value = (bit<16>)standard.packet_length;
            }
        } else if (hdr.order.what == 5) {
            hdr.order.count = hdr.order.count + 1;
            meta.kept = meta.kept + hdr.order.value;
            meta.lost = 0x7777;
        } else if (hdr.order.what == 6) {
            meta.kept = 0x1234;
            meta.also = 0x55;
            meta.lost = 0x7777;
            clone_preserving_field_list(CloneType.I2E, 5, 2);
            hdr.order.value = 0xFFFF;
        } else if (hdr.order.what == 7) {
            meta.kept = 0x4321;
            meta.also = 0x2A;
            meta.lost = 0x7777;
        } else if (hdr.order.what == 8) {
            bit<16> drawn;
            random(drawn, 10, hdr.order.value);
            hdr.order.value = drawn;
        } else if (hdr.order.what == 9) {
            assert(hdr.order.value != 13);
            assume(hdr.order.value != 14);
            log_msg("passed {}", {hdr.order.value});
        } else if (hdr.order.what == 10) {
            plain.apply();
        } else if (hdr.order.what == 11) {
            truncate(20);
            truncate(10);
            truncate(15);
        }
    }
}

control ExternsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.order.what == 5 && hdr.order.count < 3) {
            recirculate_preserving_field_list(1);
        } else if (hdr.order.what == 6) {
            hdr.order.seen = (bit<32>)meta.kept << 16 | (bit<32>)(meta.lost + (bit<16>)meta.also);
            hdr.order.count = (bit<8>)standard.instance_type;
        } else if (hdr.order.what == 7) {
            if (standard.instance_type == 0) {
                hdr.order.value = 0xEEEE;
                clone_preserving_field_list(CloneType.E2E, 5, 1);
                meta.kept = 0x5555;
            }
            hdr.order.seen = (bit<32>)meta.kept << 16 | (bit<32>)(meta.lost + (bit<16>)meta.also);
            hdr.order.count = (bit<8>)standard.instance_type;
        }
    }
}

control ExternsCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ExternsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.order);
        packet.emit(hdr.pair);
    }
}

V1Switch(ExternsParser(), ExternsVerify(), ExternsIngress(), ExternsEgress(), ExternsCompute(),
         ExternsDeparser()) main;
