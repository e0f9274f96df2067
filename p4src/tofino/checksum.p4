/* What the Internet checksums (RFC 1071) of the IPv4 header and of the aggregation header cover; parser.p4 verifies and makes them. */

#define IPV4_FIELDS { \
    hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

#define AGGREGATION_FIELDS { \
    hdr.aggregation.version, hdr.aggregation.message_type, hdr.aggregation.flags, hdr.aggregation.job, \
    hdr.aggregation.generation, hdr.aggregation.chunk, hdr.aggregation.contributors, hdr.aggregation.slot, \
    hdr.aggregation.window, hdr.aggregation.exponent, hdr.aggregation.reserved, hdr.aggregation.weight, \
    hdr.aggregation.check }
