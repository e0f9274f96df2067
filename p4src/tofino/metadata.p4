/*
 * What travels with a packet: through ingress, from ingress to egress, and around once more.
 *
 *   ingress ─bridged─▶ egress          ingress ─again─▶ recirculation port ─▶ ingress
 */

#ifndef WEIR_METADATA_P4
#define WEIR_METADATA_P4

/* In front of every packet between ingress and egress */
header bridged_t {
    bit<4>  _pad;
    bit<3>  priority;
    port_t  ingress_port;
    bit<48> ingress_time;   // ns
}

/* In front of a message whose slot has to be read a second time: a register hands out one of its two halves in a pass. */
header again_t {
    bit<7> _pad;
    bit<1> repeated;     // its child had contributed before: the answer goes to that child alone
}

/* What the packet's round is to the one that its slot held. SAME: or older; then none of that round's children are in the slot. */
enum bit<8> Verdict {
    REFUSED = 0,   // the packet may not touch a slot
    NEWER   = 1,
    SAME    = 2,
    AGAIN   = 3,   // in its second pass, and its slot still has it
    GONE    = 4    // in its second pass, and its slot has another
}

/* What kind of aggregation message the parser has seen, by version, type and length */
enum bit<2> Message {
    OTHER        = 0,
    CONTRIBUTION = 1,
    RESULT       = 2
}

struct ingress_metadata_t {
    bridged_t bridged;
    again_t   again;
    bit<16>   src_port;            // UDP's, or 0: part of the ECMP hash
    bit<16>   dst_port;
    bit<8>    drop_reason;
    /* the host at the packet's port, if it is a host's */
    bit<32>   other_source;        // not 0: the source address is not the host's
    bit<8>    barred;              // bit i: the host sends no messages of type i
    Fate      fate;
    Message   message;
    bit<8>    color;               // of its policer
    bool      ipv4_damaged;        // its checksum does not hold
    bool      aggregation_damaged;
    /* a contribution as registers take it */
    bit<32>   who;                 // job (16 bits), generation (8), 8 zeros
    bit<32>   chunk;               // chunk (24), 8 zeros
    bit<32>   child;
    bit<16>   exponent;
    /* its job in this node */
    bit<16>   index;               // of its slot
    bit<16>   slots_left;          // from that slot to the end of the job's: 0 is beyond
    bit<32>   other_children;      // than the packet's
    bit<1>    is_root;
    ipv4_address_t up_address;
    bit<32>   up_bit;
    bit<16>   down_group;
    /* it and its slot */
    Verdict   verdict;
    bit<32>   children;            // of its round that were in the slot before it; 0: it is newer, or older
    bit<32>   seen;                // its child, where that one's contribution is in the slot already
    bit<32>   missing;             // children that are not, when the packet's is
}

struct egress_metadata_t {
    bridged_t bridged;
    /* its queue */
    bit<32>   depth;               // at enqueue, in cells
    bit<32>   waited;              // since the ingress parser, in ns
    bit<32>   depth_left;          // until the queue is at its threshold
    bit<32>   sojourn_left;        // until the wait is
    bit<8>    color;               // of the virtual queue
    bool      congested;           // any of them is over
    bit<16>   window_limit;
    bit<16>   congested_limit;
}

#endif
