// A firewall between port 1 (inside) and port 2 (outside).
//
//   inside ──────────────────────────▶ outside
//   inside ◀── allowed (source, LPM) ── outside      counted by entry; what matches none is dropped, and counted, too

#include <core.p4>
#include <v1model.p4>

const bit<9> INSIDE = 1;
const bit<9> OUTSIDE = 2;
const bit<16> ETHERTYPE_IPV4 = 0x0800;

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header ipv4_t {
    bit<96> before;      // version … header checksum: nothing here reads or changes them
    bit<32> src_addr;
    bit<32> dst_addr;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t {}

parser FirewallParser(
    packet_in packet, out headers_t hdr, inout metadata_t metadata, inout standard_metadata_t standard_metadata)
{
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default:        accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control FirewallVerify(inout headers_t hdr, inout metadata_t metadata) {
    apply {}
}

control FirewallIngress(
    inout headers_t hdr, inout metadata_t metadata, inout standard_metadata_t standard_metadata)
{
    direct_counter(CounterType.packets) admitted;
    counter(1, CounterType.packets) refused;

    action refuse() {
        refused.count(0);
        mark_to_drop(standard_metadata);
    }

    action admit() {
        admitted.count();
        standard_metadata.egress_spec = INSIDE;
    }

    table allowed {
        key = { hdr.ipv4.src_addr: lpm; }
        actions = { admit; @defaultonly refuse; }
        default_action = refuse();
        counters = admitted;
        size = 1024;
    }

    apply {
        if (standard_metadata.ingress_port == INSIDE) {
            standard_metadata.egress_spec = OUTSIDE;
        } else if (hdr.ipv4.isValid()) {
            allowed.apply();
        } else {
            refuse();
        }
    }
}

control FirewallEgress(
    inout headers_t hdr, inout metadata_t metadata, inout standard_metadata_t standard_metadata)
{
    apply {}
}

control FirewallUpdate(inout headers_t hdr, inout metadata_t metadata) {
    apply {}
}

control FirewallDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(
    FirewallParser(), FirewallVerify(), FirewallIngress(), FirewallEgress(), FirewallUpdate(), FirewallDeparser()) main;
