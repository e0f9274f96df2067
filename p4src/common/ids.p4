/* Every number with a meaning that all targets share: protocol numbers, message types, drop reasons. Sizes are in sizes.p4. */

#ifndef WEIR_IDS_P4
#define WEIR_IDS_P4

typedef bit<9>  port_t;
typedef bit<32> ipv4_address_t;
typedef bit<48> mac_address_t;

/* Ethernet, IPv4, UDP */
const bit<16> ETHERTYPE_IPV4     = 0x0800;
const bit<8>  IPV4_NO_OPTIONS    = 0x45;   // version 4, header length 5
const bit<8>  PROTOCOL_TCP       = 6;
const bit<8>  PROTOCOL_UDP       = 17;
const bit<8>  DEFAULT_TTL        = 64;     // of what this node emits
const bit<2>  ECN_NOT_ECT        = 0;
const bit<2>  ECN_CE             = 3;
const bit<16> AGGREGATION_PORT   = 22341;  // 0x5745
const bit<16> INT_PORT           = 5000;   // INT_TBD of the INT specification

/* Traffic classes */
const bit<3> BULK_PRIORITY = 0;

/* Aggregation messages */
const bit<4> AGGREGATION_VERSION = 1;
const bit<8> FLAG_CONGESTION     = 0x01;
const bit<8> FLAG_LANES          = 0x04;   // lanes were added
const bit<8> FLAG_WANTED         = 0x08;   // the result's lanes are

const bit<4> CONTRIBUTION   = 1;
const bit<4> RESULT         = 2;   // a contribution's type plus one
const bit<4> SCALE          = 3;
const bit<4> SCALE_RESULT   = 4;   // a scale contribution's type plus one
const bit<4> FETCH          = 5;
const bit<4> FETCHED        = 6;
const bit<4> SCALE_FETCHED  = 7;
const bit<4> PRESENT        = 8;   // a contribution without lanes
const bit<4> DONE           = 9;   // a result without lanes

/* Drop reasons: indices of the counter FabricIngress.drops */
const bit<8> DROP_TRUNCATED      = 0;
const bit<8> DROP_MALFORMED      = 1;
const bit<8> DROP_BAD_CHECKSUM   = 2;
const bit<8> DROP_NOT_IPV4       = 3;
const bit<8> DROP_TTL_EXPIRED    = 4;
const bit<8> DROP_NO_ROUTE       = 5;
const bit<8> DROP_NO_SERVICE     = 6;
const bit<8> DROP_UNKNOWN_JOB    = 7;
const bit<8> DROP_NOT_MEMBER     = 8;
const bit<8> DROP_NOT_PARENT     = 9;
const bit<8> DROP_BAD_SLOT       = 10;
const bit<8> DROP_DUPLICATE      = 11;
const bit<8> DROP_LATE           = 12;
const bit<8> DROP_POLICED        = 13;
const bit<8> DROP_FOREIGN_SOURCE = 14;
const bit<8> DROP_FOREIGN_TYPE   = 15;
const bit<8> DROP_FOREIGN_PORT   = 16;
const bit<8> DROP_OUT_OF_WINDOW  = 17;

/* What ingress has decided for a packet */
enum bit<2> Fate {
    ROUTE = 0,   // look up its destination address
    SEND  = 1,   // an egress port or a multicast group is chosen
    KEEP  = 2,   // summed into a slot; nothing leaves
    DROP  = 3    // counted under meta.drop_reason
}

/* INT 2.1 */
const bit<4>  INT_TYPE_MD      = 1;
const bit<4>  INT_TYPE_MX      = 3;
const bit<4>  INT_VERSION      = 2;
const bit<2>  NPT_UNCHANGED    = 0;
const bit<2>  NPT_UDP_PORT     = 1;
const bit<2>  NPT_PROTOCOL     = 2;
const bit<16> INT_DOMAIN       = 0x5745;
const bit<16> DS_FLAG_EVENT    = 0x8000;   // of DS flags: a node saw depth or latency cross its threshold, or move by its step
const bit<64> PROBE_MARKER     = 0x576569722D494E54;
const bit<6>  DSCP_MARK        = 0x01;     // the DSCP's bit that means "INT follows"
const bit<32> UNAVAILABLE      = 0xFFFFFFFF;
const bit<16> UNAVAILABLE_PORT = 0xFFFF;
const bit<64> NS_PER_US        = 1000;

/* What says that a packet has INT */
enum bit<2> Mark {
    NONE         = 0,
    UDP_PORT     = 1,
    DSCP         = 2,
    PROBE_MARKER = 3
}

/* What a watchlist wants of a packet */
enum bit<2> Mode {
    NONE = 0,
    MD   = 1,
    MX   = 2,
    XD   = 3
}

/* Whose checksum covers what INT changes */
enum bit<2> L4 {
    NONE = 0,
    UDP  = 1,
    TCP  = 2
}

/* Telemetry reports 2.0 */
const bit<4>  REPORT_VERSION    = 2;
const bit<4>  REPORT_TYPE_INT   = 1;
const bit<4>  REPORT_INNER_IPV4 = 4;
const bit<8>  REPORT_TO_THE_END = 0xFF;
const bit<8>  REPORT_DROPPED    = 0x80;    // D
const bit<8>  REPORT_QUEUE      = 0x40;    // Q
const bit<8>  REPORT_FLOW       = 0x20;    // F
const bit<32> REPORT_SESSION    = 250;     // the clone session of what becomes a report

/* Bits of RepMdBits and DSMdBits */
const bit<16> REPORT_BITS_KNOWN    = 0x7D00;   // ports … timestamps, utilisation
const bit<16> REPORT_BIT_LEVEL2    = 0x0200;   // where both ports have names
const bit<16> REPORT_BITS_OF_QUEUE = 0x7C00;   // ports … timestamps
const bit<16> REPORT_BITS_OF_STACK = 0x0800;   // ingress timestamp
const bit<16> REPORT_BITS_OF_DROP  = 0x4801;   // ports, ingress timestamp, drop reason
const bit<16> DOMAIN_BIT_BYTES     = 0x8000;
const bit<16> DOMAIN_BIT_SLOTS     = 0x4000;
const bit<16> DOMAIN_BIT_NUMBER    = 0x2000;

enum bit<2> Report {
    NONE  = 0,
    STACK = 1,   // what came with the packet, at the sink
    DROP  = 2,
    OWN   = 3    // this node's metadata
}

#endif
