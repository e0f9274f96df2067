/*
 * What travels with a packet: through ingress, from ingress to egress, and around once more.
 *
 *   ingress ─bridged─▶ egress          ingress ─again─▶ recirculation port ─▶ ingress
 */

#ifndef WEIR_METADATA_P4
#define WEIR_METADATA_P4

/* What comes to egress: a packet from ingress, or what a mirror has made of one that has been in egress */
enum bit<2> Kind {
    BRIDGED  = 0,
    MIRRORED = 1,
    MESSAGE  = 2,   // bridged, and ingress has seen an aggregation message
    REPORT   = 3    // mirrored, and to become a report of this node
}

/* Of what is asked for: the packet's number in place of bit 0, and when it came, which it is taken from */
const bit<16> NUMBERED       = 0x8800;
const bit<16> A_STACK        = 0x0D88;   // reported_t: Kind.REPORT, as it came, these items

/* In front of every packet between ingress and egress */
header bridged_t {
    bit<1>  _pad;
    bit<1>  expanded;       // came as PRESENT, and has lanes
    bit<1>  ends;           // its INT does here
    bit<1>  numbered;       // and what came is reported apart
    Kind    kind;
    Mark    mark;           // NONE: no INT
    bit<8>  priority;
    bit<16> ingress_port;
    bit<48> ingress_time;   // ns
}

/* In front of a finished probe on its way to the CPU port */
header mirrored_t {
    bit<4>  _pad;
    Kind    kind;
    bit<2>  _mark;
}

/* In front of what becomes a report: its items as they are to be, of which those go that are not wanted */
header reported_t {
    bit<4>  _pad;
    Kind    kind;
    bit<1>  _pad_of_mark;
    bit<1>  as_it_came;     // to a sink, with a stack
    bit<8>  items;          // RepMdBits 1 to 7; in place of bit 0, which is reserved: the packet's number is wanted
}

/* The same with the items, as the mirror of egress puts them in front */
header report_front_t {
    bit<4>  _pad;
    Kind    kind;
    bit<2>  _mark;
    bit<8>  items;
    bit<16> ingress_port;
    bit<7>  _pad_of_port;
    port_t  egress_port;
    bit<32> latency;
    bit<8>  queue_id;
    bit<5>  _pad_of_depth;
    bit<19> depth;
    bit<16> _pad_of_ingress_time;
    bit<48> ingress_time;
    bit<16> _pad_of_egress_time;
    bit<48> egress_time;
}

/* As the mirror of ingress does: of a stack there is one item, and its number */
header stack_front_t {
    bit<16> reported;       // reported_t
    bit<16> ingress_port;   // in place of 16 zeros, for which there is no container: egress takes it out of the time
    bit<48> ingress_time;
}

/* Of the stack that comes off at a sink */
header stack_word_t {
    bit<32> word;
}

/* In front of a message whose slot has to be read a second time: a register hands out one of its two halves in a pass. */
header again_t {
    bit<7> _pad;
    bit<1> repeated;     // its child had contributed before: the answer goes to that child alone
}

/* Which time it is that the packet comes to its slot */
enum bit<2> Turn {
    NONE   = 0,    // it may not
    FIRST  = 1,
    SECOND = 2
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
    MirrorId_t session;            // of the mirror
    bit<16>   reported;            // reported_t of a stack
    bit<16>   src_port;            // UDP's or TCP's as if there were no INT, or 0: part of the ECMP hash
    bit<16>   dst_port;
    /* INT, as the packet came */
    Mark      mark;
    bool      has_int;             // a shim with an INT-MD or INT-MX header of our version
    bool      stacks;              // INT-MD, of any version
    bit<1>    dscp_marked;
    bit<8>    drop_reason;
    bool      mine;                // addressed to this node
    /* the host at the packet's port, if it is a host's */
    bit<32>   other_source;        // not 0: the source address is not the host's
    bit<8>    barred;              // bit i: the host sends no messages of type i
    Fate      fate;
    Message   message;
    bit<4>    answer;              // the type of what a contribution's sum is sent down as
    bit<8>    color;               // of its policer
    bool      ipv4_damaged;        // its checksum does not hold
    bool      aggregation_damaged;
    /* a contribution as registers take it */
    bit<32>   who;                 // job (16 bits), generation (8), 8 zeros
    bit<32>   chunk;               // chunk (24), 8 zeros
    bit<32>   child;
    bit<16>   exponent;
    /* its job in this node */
    bool      has_job;
    bool      is_member;           // of the job, at that port and address
    bool      is_parent;
    bit<16>   index;               // of its slot
    bit<16>   slots_left;          // from that slot to the end of the job's: 0 is beyond
    bit<32>   other_children;      // than the packet's
    bit<1>    is_root;
    ipv4_address_t up_address;
    bit<32>   up_bit;
    bit<16>   down_group;
    /* it and its slot */
    Turn      turn;
    bit<1>    claimed;             // 1: its round is newer than the slot's, or, in its second turn, the slot still has it
    bit<32>   children;            // of its round that were in the slot before it; 0: it is newer, or older
    bit<32>   seen;                // its child, where that one's contribution is in the slot already
    bit<32>   missing;             // children that are not, when the packet's is
}

struct egress_metadata_t {
    bridged_t bridged;
    mirrored_t mirrored;
    reported_t reported;
    /* one header each: the back end ends a way through a parser, without a word, where a header is extracted a second time */
    stack_word_t stack_word_16;
    stack_word_t stack_word_15;
    stack_word_t stack_word_14;
    stack_word_t stack_word_13;
    stack_word_t stack_word_12;
    stack_word_t stack_word_11;
    stack_word_t stack_word_10;
    stack_word_t stack_word_9;
    stack_word_t stack_word_8;
    stack_word_t stack_word_7;
    stack_word_t stack_word_6;
    stack_word_t stack_word_5;
    stack_word_t stack_word_4;
    stack_word_t stack_word_3;
    stack_word_t stack_word_2;
    stack_word_t stack_word_1;
    bool      leaves;              // through this port, onto the link
    MirrorId_t session;            // of the mirror
    Kind      becomes;             // what a mirror makes of it
    bit<16>   shown_port;          // its ingress port where the packet_in header has it
    /* its queue */
    bit<32>   depth;               // at enqueue, in cells
    bit<32>   waited;              // since the ingress parser, in ns
    bit<32>   depth_left;          // until the queue is at its threshold
    bit<32>   sojourn_left;        // until the wait is
    bit<8>    color;               // of the virtual queue
    bool      bounded;             // it is a bulk packet, and the queue has a bound
    bool      congested;           // any of them is over
    bit<16>   window_limit;
    bit<16>   congested_limit;
    /* its link and this node */
    bit<16>   mtu;
    bit<32>   egress_name;
    bit<32>   ingress_name;
    bit<32>   this_node;
    bit<32>   free_slots;
    /* the flow, as watchlists ask for it */
    bool      watchable;           // a whole packet without INT
    bit<16>   src_port;
    bit<16>   dst_port;
    /* what a watchlist wants of it */
    Mode      wanted;
    bit<10>   sampler;
    bit<16>   one_in_less_1;
    bit<16>   skipped;             // packets since the last that was chosen
    bit<8>    hops;
    Mark      source_mark;
    bit<1>    to_host;
    bit<16>   beyond_short;        // bytes that shim and header would be too many for the link
    bit<16>   beyond_long;         // with a marker in front
    /* a report */
    bit<16>   inner_bytes;
    bit<8>    report_words;
    bit<16>   report_bytes;
    bit<32>   sequence;
    /* what INT asks for, by the packet's header or a watchlist, in words or by bits; and how it stands to the packet */
    bit<16>   asked;
    bit<16>   asked_of_domain;     // of our domain
    bit<5>    asked_words;
    bit<8>    shim_words;
    bit<8>    items;               // bits 0 to 7
    bit<2>    domain_items;        // the domain's bits 0 and 1
    bit<8>    words;               // of bits 0 to 7, then with the domain's
    bit<8>    domain_words;
    bit<8>    hop_words;
    bit<8>    mismatch;            // 0: as many as the source has said
    bit<8>    stack_words;         // behind the shim then
    bit<8>    uncountable;         // words that the shim's length has room for, then by how many there would be too many
    bit<16>   growth;              // in bytes
    bit<16>   twice_growth;
    bit<16>   beyond_mtu;
    bool      pushes;
    /* bytes of its port */
    bit<16>   frame_bytes;
    bit<32>   sent_before;
    bit<32>   carried_before;
    /* the L4 checksum without what INT changes, and by what a length in it has grown: twice in UDP, by its own and its pseudo header's */
    bit<16>   rest_of_sum;
    bool      sums_udp;
    bool      sums_tcp;
    bit<16>   grown;
    bit<16>   grown_twice;
}

#endif
