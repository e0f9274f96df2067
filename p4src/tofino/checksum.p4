/*
 * What the Internet checksums (RFC 1071) of the IPv4 header and of the aggregation header cover; parser.p4 verifies and makes them.
 * Those of UDP and TCP are changed by what INT changes (RFC 1624), so that damage on the way stays visible: egress takes out of the
 * old one what it may change, and puts in what that has become. Headers that are not there do not count, nor do runs of ones, which
 * are the other zero.
 */

#define IPV4_FIELDS { \
    hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

#define AGGREGATION_FIELDS { \
    hdr.aggregation.version, hdr.aggregation.message_type, hdr.aggregation.flags, hdr.aggregation.job, \
    hdr.aggregation.generation, hdr.aggregation.chunk, hdr.aggregation.contributors, hdr.aggregation.slot, \
    hdr.aggregation.window, hdr.aggregation.exponent, hdr.aggregation.reserved, hdr.aggregation.weight, \
    hdr.aggregation.check }

#define SHIM_PARTS \
    hdr.int_shim.shim_type, hdr.int_shim.next_protocol_type, hdr.int_shim.reserved, hdr.int_shim.length, \
    hdr.int_shim.original
#define MD_PARTS \
    hdr.int_md.version, hdr.int_md.discard, hdr.int_md.hop_limit_exceeded, hdr.int_md.mtu_exceeded, \
    hdr.int_md.reserved, hdr.int_md.hop_words, hdr.int_md.remaining_hops, hdr.int_md.instructions, \
    hdr.int_md.domain, hdr.int_md.domain_instructions, hdr.int_md.domain_flags
#define SHIM_FIELDS { SHIM_PARTS }
#define MD_FIELDS { MD_PARTS }

#define INT_FIELDS \
    hdr.int_marker.marker, SHIM_PARTS, MD_PARTS, \
    hdr.int_node_id.node_id, hdr.int_ports.ingress_port, hdr.int_ports.egress_port, hdr.int_latency.microseconds, \
    hdr.int_queue.queue_id, hdr.int_queue.packets, hdr.int_ingress_time.nanoseconds, hdr.int_egress_time.nanoseconds, \
    hdr.int_interfaces.ingress_interface, hdr.int_interfaces.egress_interface, \
    hdr.int_bytes.bytes_sent, hdr.int_slots.free_slots
