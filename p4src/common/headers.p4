/*
 * The headers on the wire and what travels with a packet through the pipeline.
 *
 *   Ethernet | IPv4 | UDP to 22341 | aggregation | lanes (contributions only; else they stay payload)
 *                   | UDP to 5000  | INT shim | INT-MD | this hop's items, newest first | earlier hops (payload)
 *                   | other UDP    | payload
 *
 * To and from the control plane a packet_in or packet_out header stands in front of Ethernet. The target says how many LANES.
 */

#ifndef WEIR_HEADERS_P4
#define WEIR_HEADERS_P4

#include "ids.p4"
#include "interface.p4"
#include "repeat.p4"
#include "sizes.p4"

@id(PACKET_IN_ID) @controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> _pad;
}

@id(PACKET_OUT_ID) @controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> _pad;
}

header ethernet_t {
    mac_address_t dst_addr;
    mac_address_t src_addr;
    bit<16>       ether_type;
}

header ipv4_t {
    bit<4>         version;
    bit<4>         ihl;
    bit<6>         dscp;
    bit<2>         ecn;
    bit<16>        total_length;
    bit<16>        identification;
    bit<3>         flags;
    bit<13>        fragment_offset;
    bit<8>         ttl;
    bit<8>         protocol;
    bit<16>        checksum;
    ipv4_address_t src_addr;
    ipv4_address_t dst_addr;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

header aggregation_t {
    bit<4>  version;
    bit<4>  message_type;
    bit<8>  flags;
    bit<16> job;
    bit<8>  generation;
    bit<24> chunk;
    bit<32> contributors;
    bit<16> slot;
    bit<16> window;
    bit<8>  exponent;
    bit<8>  reserved;
    bit<16> checksum;
    bit<32> weight;
    bit<32> check;
}

#define LANE_FIELD(i) bit<32> lane_##i;
header lanes_t {
    EACH_NARROW_LANE(LANE_FIELD)
}

#if LANES > NARROW_LANES
header wide_lanes_t {
    EACH_WIDE_LANE(LANE_FIELD)
}
#endif

header int_shim_t {
    bit<4>  shim_type;
    bit<2>  next_protocol_type;
    bit<2>  reserved;
    bit<8>  length;          // words behind the shim
    bit<16> original_port;
}

header int_md_t {
    bit<4>  version;
    bit<1>  discard;
    bit<1>  hop_limit_exceeded;   // E
    bit<1>  mtu_exceeded;         // M
    bit<12> reserved;
    bit<5>  hop_words;            // hop ML
    bit<8>  remaining_hops;
    bit<16> instructions;         // bit 0 of the specification is the most significant
    bit<16> domain;
    bit<16> domain_instructions;
    bit<16> domain_flags;
}

/* One header per item that this program can fill */
header int_node_id_t   { bit<32> node_id; }
header int_ports_t     { bit<16> ingress_port; bit<16> egress_port; }
header int_latency_t   { bit<32> microseconds; }
header int_queue_t     { bit<8> queue_id; bit<24> packets; }
header int_timestamp_t { bit<64> nanoseconds; }
header int_bytes_t     { bit<64> bytes_sent; }

/* Runs of items that it cannot fill: all ones. A run of any length is some of these, one per bit of the length. */
header int_ones_1_t  { bit<32>  ones; }
header int_ones_2_t  { bit<64>  ones; }
header int_ones_4_t  { bit<128> ones; }
header int_ones_8_t  { bit<256> ones; }
header int_ones_16_t { bit<512> ones; }

struct headers_t {
    packet_in_t     packet_in;
    packet_out_t    packet_out;
    ethernet_t      ethernet;
    ipv4_t          ipv4;
    udp_t           udp;
    aggregation_t   aggregation;
    lanes_t         lanes;
#if LANES > NARROW_LANES
    wide_lanes_t    wide_lanes;
#endif
    int_shim_t      int_shim;
    int_md_t        int_md;
    int_node_id_t   int_node_id;
    int_ports_t     int_ports;
    int_latency_t   int_latency;
    int_queue_t     int_queue;
    int_timestamp_t int_ingress_time;
    int_timestamp_t int_egress_time;
    int_ones_8_t    int_baseline_ones_8;
    int_ones_4_t    int_baseline_ones_4;
    int_ones_2_t    int_baseline_ones_2;
    int_ones_1_t    int_baseline_ones_1;
    int_bytes_t     int_bytes;
    int_ones_16_t   int_domain_ones_16;
    int_ones_8_t    int_domain_ones_8;
    int_ones_4_t    int_domain_ones_4;
    int_ones_2_t    int_domain_ones_2;
    int_ones_1_t    int_domain_ones_1;
}

struct metadata_t {
    bit<16> src_port;      // UDP's, or 0: part of the ECMP hash
    bit<16> dst_port;
    Fate    fate;
    bit<8>  drop_reason;
    bool    leaves;        // in egress: through this port, onto the link
}

#endif
