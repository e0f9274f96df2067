/*
 * The headers on the wire and what travels with a packet through the pipeline.
 *
 *   Ethernet | IPv4 | UDP or TCP | [INT] | aggregation, behind UDP to 22341 | lanes (contributions only; else they stay payload)
 *
 * INT is [probe marker] | shim | INT-MD or INT-MX | this hop's items | earlier hops' | [TCP, behind a UDP header of INT's own].
 * A telemetry report's headers stand in front of the IPv4 header of the packet that it is about.
 * To and from the control plane a packet_in or packet_out header stands in front of it all. The target says how many LANES.
 */

#ifndef WEIR_HEADERS_P4
#define WEIR_HEADERS_P4

#include "ids.p4"
#include "interface.p4"
#include "repeat.p4"
#include "sizes.p4"

#define REPORT_FIELDS 1

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

/* Its options stay payload: INT stands in front of them. */
header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<16> offset_flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
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
    bit<16> original;        // UDP port, IP protocol or DSCP
}

header int_marker_t {
    bit<64> marker;
}

/* INT-MX's header is laid out in the same way; what is not version or discard in the first word is reserved there. */
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
header int_interfaces_t { bit<32> ingress_interface; bit<32> egress_interface; }
header int_utilisation_t { bit<32> bytes_in_window; }
header int_bytes_t     { bit<64> bytes_sent; }
header int_slots_t     { bit<32> free_slots; }
header int_drop_t      { bit<8> queue_id; bit<8> reason; bit<16> padding; }
header int_number_t    { bit<32> packet_number; }

/* What earlier hops have pushed, or a source has put behind an INT-MX header */
header int_stack_t { varbit<8064> words; }

/* Runs of items that it cannot fill: all ones. A run of any length is some of these, one per bit of the length. */
header int_ones_1_t  { bit<32>  ones; }
header int_ones_2_t  { bit<64>  ones; }
header int_ones_4_t  { bit<128> ones; }
header int_ones_8_t  { bit<256> ones; }
header int_ones_16_t { bit<512> ones; }

header report_group_t {
    bit<4>  version;
    bit<6>  hardware_id;
    bit<22> sequence;
    bit<32> node_id;
}

header report_t {
    bit<4>  report_type;
    bit<4>  inner_type;
    bit<8>  length;            // words behind this one
    bit<8>  metadata_length;   // words
    bit<8>  flags;             // D, Q, F, I, reserved
    bit<16> metadata_bits;
    bit<16> domain;
    bit<16> domain_bits;
    bit<16> domain_status;
}

struct headers_t {
    packet_in_t     packet_in;
    packet_out_t    packet_out;

    /* a report's own */
    ethernet_t        report_ethernet;
    ipv4_t            report_ipv4;
    udp_t             report_udp;
    report_group_t    report_group;
    report_t          report;
    int_ports_t       report_ports;
    int_latency_t     report_latency;
    int_queue_t       report_queue;
    int_timestamp_t   report_ingress_time;
    int_timestamp_t   report_egress_time;
    int_interfaces_t  report_interfaces;
    int_utilisation_t report_utilisation;
    int_drop_t        report_drop;
    int_bytes_t       report_bytes;
    int_slots_t       report_slots;
    int_number_t      report_number;

    ethernet_t      ethernet;
    ipv4_t          ipv4;
    udp_t           udp;
    tcp_t           tcp;

    int_marker_t    int_marker;
    int_shim_t      int_shim;
    int_md_t        int_md;
    int_node_id_t   int_node_id;
    int_ports_t     int_ports;
    int_latency_t   int_latency;
    int_queue_t     int_queue;
    int_timestamp_t int_ingress_time;
    int_timestamp_t int_egress_time;
    int_interfaces_t int_interfaces;
    int_utilisation_t int_utilisation;
    int_ones_4_t    int_baseline_ones_4;
    int_ones_2_t    int_baseline_ones_2;
    int_ones_1_t    int_baseline_ones_1;
    int_bytes_t     int_bytes;
    int_slots_t     int_slots;
    int_ones_16_t   int_domain_ones_16;
    int_ones_8_t    int_domain_ones_8;
    int_ones_4_t    int_domain_ones_4;
    int_ones_2_t    int_domain_ones_2;
    int_ones_1_t    int_domain_ones_1;
    int_stack_t     int_stack;
    tcp_t           int_inner_tcp;   // behind INT, where a UDP header was put in front
    int_stack_t     gone_stack;      // taken out, for the checksum; the deparser leaves it out

    aggregation_t   aggregation;
    lanes_t         lanes;
#if LANES > NARROW_LANES
    wide_lanes_t    wide_lanes;
#endif
#ifdef CLASSIFICATION
    classification_t classification;
    features_t       features;
#endif
}

struct metadata_t {
    /* the flow, as if there were no INT; ports are UDP's or TCP's, or 0 */
    bit<16> src_port;
    bit<16> dst_port;
    bit<8>  protocol;
    Fate    fate;
    bit<8>  drop_reason;
    bool    leaves;        // in egress: through this port, onto the link
#ifdef PRUNING
    bit<32> wanting;       // children that want the lanes of the result; in egress, the receiving one's bit of them
    bit<16> pruned_bytes;  // of the frame without its lanes; 0: it keeps them
#endif

    /* INT, as the packet came */
    Mark    mark;
    bit<1>  has_int;       // a shim with an INT-MD or INT-MX header of our version
    bit<1>  stacks;        // INT-MD
    bit<1>  discards;      // D
    bit<1>  whole;         // no fragment
    bit<1>  dscp_marked;
    bit<1>  at_sink;       // INT ends here
    bit<1>  due;           // and the packet is reported
    bit<16> int_bytes;     // from the marker, or the shim, to the stack's end
    bit<16> udp_length;    // without them

    /* what is wanted of the packet here, by a watchlist, an INT-MX header, or an INT header that ended here */
    Mode    wanted;
    bit<1>  ignored;       // by the watchlist: nothing of it is reported
    bit<16> instructions;
    bit<16> domain_instructions;
    bit<16> mtu;           // of the port that it leaves by
    bit<32> egress_name;
    bit<1>  steps_set;     // the controller has said what is an event of a flow
    bit<1>  flow_event;    // the packet's flow is to be reported
    bit<1>  queue_event;   // and its queue

    /* the L4 checksum, which changes by what INT adds and removes: complements of what it covered before */
    L4      sums;
    bit<1>  resum;
    bit<16> not_sum;       // the checksum itself
    bit<16> not_port;
    bit<16> not_length;    // UDP's, or of the IPv4 packet around TCP
    bit<64> not_marker;
    bit<32> not_shim;
    bit<32> not_counts;    // the first word of the INT header, the second, the third
    bit<32> not_asked;
    bit<32> not_domain;
    bit<16> not_stack;

    /* What a report is to say. Clones keep it. */
    @field_list(REPORT_FIELDS) Report  report;
    @field_list(REPORT_FIELDS) bit<8>  report_flags;
    @field_list(REPORT_FIELDS) bit<16> report_bits;
    @field_list(REPORT_FIELDS) bit<16> report_domain_bits;
    @field_list(REPORT_FIELDS) bit<16> report_inner_bytes;      // at most, of the packet
    @field_list(REPORT_FIELDS) bit<16> report_ingress_port;
    @field_list(REPORT_FIELDS) bit<16> report_egress_port;
    @field_list(REPORT_FIELDS) bit<32> report_latency;
    @field_list(REPORT_FIELDS) bit<8>  report_queue_id;
    @field_list(REPORT_FIELDS) bit<24> report_depth;
    @field_list(REPORT_FIELDS) bit<48> report_ingress_time;
    @field_list(REPORT_FIELDS) bit<48> report_egress_time;
    @field_list(REPORT_FIELDS) bit<32> report_ingress_name;
    @field_list(REPORT_FIELDS) bit<32> report_egress_name;
    @field_list(REPORT_FIELDS) bit<32> report_utilisation;
    @field_list(REPORT_FIELDS) bit<64> report_bytes_sent;
    @field_list(REPORT_FIELDS) bit<32> report_free_slots;
    @field_list(REPORT_FIELDS) bit<32> report_number;
    @field_list(REPORT_FIELDS) bit<8>  report_reason;
}

#endif
