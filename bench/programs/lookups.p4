// One lookup in a table of each kind, chosen by the UDP destination port: what a lookup costs, whatever the size.
//
//   Ethernet / IPv4 / UDP ─► port 1: hosts (exact)   ┐
//                            port 2: routes (LPM)    ├─► send(port)
//                            port 3: rules (ternary) ┘
//                            else: a fixed port, without a lookup

#include <core.p4>
#include <v1model.p4>

const bit<32> ENTRIES = 131072;
const bit<9> FIXED_PORT = 2;

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header ipv4_t {
    bit<64> others;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
}

struct metadata_t {}

parser LookupsParser(
    packet_in packet, out headers_t hdr, inout metadata_t metadata, inout standard_metadata_t standard_metadata)
{
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        transition accept;
    }
}

control LookupsVerify(inout headers_t hdr, inout metadata_t metadata) {
    apply {}
}

control LookupsIngress(
    inout headers_t hdr, inout metadata_t metadata, inout standard_metadata_t standard_metadata)
{
    action send(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    table hosts {
        key = { hdr.ipv4.dst_addr: exact; }
        actions = { send; drop; }
        default_action = drop();
        size = ENTRIES;
    }

    table routes {
        key = { hdr.ipv4.dst_addr: lpm; }
        actions = { send; drop; }
        default_action = drop();
        size = ENTRIES;
    }

    table rules {
        key = { hdr.ipv4.dst_addr: ternary; }
        actions = { send; drop; }
        default_action = drop();
        size = ENTRIES;
    }

    apply {
        if (hdr.udp.dst_port == 1) {
            hosts.apply();
        } else if (hdr.udp.dst_port == 2) {
            routes.apply();
        } else if (hdr.udp.dst_port == 3) {
            rules.apply();
        } else {
            send(FIXED_PORT);
        }
    }
}

control LookupsEgress(
    inout headers_t hdr, inout metadata_t metadata, inout standard_metadata_t standard_metadata)
{
    apply {}
}

control LookupsUpdate(inout headers_t hdr, inout metadata_t metadata) {
    apply {}
}

control LookupsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
    }
}

V1Switch(LookupsParser(), LookupsVerify(), LookupsIngress(), LookupsEgress(), LookupsUpdate(), LookupsDeparser()) main;
