/*
 * Internet checksums (RFC 1071).
 *
 * Those of the IPv4 header and of the aggregation header are verified on arrival and made anew on leaving. Those of UDP and TCP
 * are changed by what INT adds and removes (RFC 1624, equation 3), so that damage on the way stays visible: the sum takes in
 * the complements of what was covered (meta.not_*) and what is covered now. A Tofino does so in its deparsers.
 */

#define IPV4_FIELDS { \
    hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

#define REPORT_IPV4_FIELDS { \
    hdr.report_ipv4.version, hdr.report_ipv4.ihl, hdr.report_ipv4.dscp, hdr.report_ipv4.ecn, hdr.report_ipv4.total_length, \
    hdr.report_ipv4.identification, hdr.report_ipv4.flags, hdr.report_ipv4.fragment_offset, hdr.report_ipv4.ttl, \
    hdr.report_ipv4.protocol, hdr.report_ipv4.src_addr, hdr.report_ipv4.dst_addr }

/* What INT has changed, as it was, and as it is. Fields of headers that are not there do not count, nor do runs of ones, which
 * are the other zero. A length counts twice in UDP (its header's and its pseudo header's), once in TCP (the pseudo header's). */
#define L4_WAS \
    meta.not_sum, meta.not_length, meta.not_marker, meta.not_shim, meta.not_counts, meta.not_asked, meta.not_domain, \
    meta.not_stack
#define L4_IS \
    hdr.int_marker.marker, \
    hdr.int_shim.shim_type, hdr.int_shim.next_protocol_type, hdr.int_shim.reserved, hdr.int_shim.length, \
    hdr.int_shim.original, \
    hdr.int_md.version, hdr.int_md.discard, hdr.int_md.hop_limit_exceeded, hdr.int_md.mtu_exceeded, \
    hdr.int_md.reserved, hdr.int_md.hop_words, hdr.int_md.remaining_hops, hdr.int_md.instructions, \
    hdr.int_md.domain, hdr.int_md.domain_instructions, hdr.int_md.domain_flags, \
    hdr.int_node_id.node_id, hdr.int_ports.ingress_port, hdr.int_ports.egress_port, hdr.int_latency.microseconds, \
    hdr.int_queue.queue_id, hdr.int_queue.packets, hdr.int_ingress_time.nanoseconds, hdr.int_egress_time.nanoseconds, \
    hdr.int_interfaces.ingress_interface, hdr.int_interfaces.egress_interface, hdr.int_utilisation.bytes_in_window, \
    hdr.int_bytes.bytes_sent, hdr.int_slots.free_slots

#define AGGREGATION_FIELDS { \
    hdr.aggregation.version, hdr.aggregation.message_type, hdr.aggregation.flags, hdr.aggregation.job, \
    hdr.aggregation.generation, hdr.aggregation.chunk, hdr.aggregation.contributors, hdr.aggregation.slot, \
    hdr.aggregation.window, hdr.aggregation.exponent, hdr.aggregation.reserved, hdr.aggregation.weight, \
    hdr.aggregation.check }

/* What the checksum of a UDP datagram or a TCP segment covers and INT is about to change, before it does. */
control L4Save(inout headers_t hdr, inout metadata_t meta) {
    apply {
        meta.not_marker = 0;
        meta.not_stack = 0;
        if (meta.sums == L4.UDP) {
            meta.resum = 1;
            meta.not_sum = ~hdr.udp.checksum;
            meta.not_port = ~hdr.udp.dst_port;
            meta.not_length = ~hdr.udp.length;
        } else if (meta.sums == L4.TCP) {
            meta.resum = 1;
            meta.not_sum = ~hdr.tcp.checksum;
            meta.not_length = ~hdr.ipv4.total_length;
        }
        if (meta.has_int == 1) {
            meta.not_shim = ~(hdr.int_shim.shim_type ++ hdr.int_shim.next_protocol_type ++ hdr.int_shim.reserved
                ++ hdr.int_shim.length ++ hdr.int_shim.original);
            meta.not_counts = ~(hdr.int_md.version ++ hdr.int_md.discard ++ hdr.int_md.hop_limit_exceeded
                ++ hdr.int_md.mtu_exceeded ++ hdr.int_md.reserved ++ hdr.int_md.hop_words ++ hdr.int_md.remaining_hops);
            meta.not_asked = ~(hdr.int_md.instructions ++ hdr.int_md.domain);
            meta.not_domain = ~(hdr.int_md.domain_instructions ++ hdr.int_md.domain_flags);
            meta.not_marker = meta.mark == Mark.PROBE_MARKER ? ~PROBE_MARKER : 0;
        } else {
            meta.not_shim = 0;
            meta.not_counts = 0;
            meta.not_asked = 0;
            meta.not_domain = 0;
        }
    }
}

control FabricVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(
            hdr.aggregation.isValid(), AGGREGATION_FIELDS, hdr.aggregation.checksum, HashAlgorithm.csum16);
    }
}

control FabricComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(
            hdr.report_ipv4.isValid(), REPORT_IPV4_FIELDS, hdr.report_ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(
            hdr.aggregation.isValid(), AGGREGATION_FIELDS, hdr.aggregation.checksum, HashAlgorithm.csum16);
        // the complement of the stack's sum, which goes out with it
        update_checksum(
            meta.resum == 1 && hdr.gone_stack.isValid(), { hdr.gone_stack.words }, meta.not_stack, HashAlgorithm.csum16);
        // a datagram without a checksum (0) stays without (RFC 768); a sum that comes out as 0 is written as all ones, which is
        // the sum of nothing
        update_checksum(
            meta.resum == 1 && meta.sums == L4.UDP && meta.not_sum != 0xFFFF,
            { L4_WAS, meta.not_length, meta.not_port, hdr.udp.dst_port, hdr.udp.length, hdr.udp.length, L4_IS },
            hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(
            meta.resum == 1 && meta.sums == L4.UDP && meta.not_sum != 0xFFFF && hdr.udp.checksum == 0, { 16w0 },
            hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(
            meta.resum == 1 && meta.sums == L4.TCP, { L4_WAS, hdr.ipv4.total_length, L4_IS },
            hdr.tcp.checksum, HashAlgorithm.csum16);
    }
}
