/* Every number with a meaning that all targets share: protocol numbers, message types, drop reasons. Sizes are in sizes.p4. */

#ifndef WEIR_IDS_P4
#define WEIR_IDS_P4

typedef bit<9>  port_t;
typedef bit<32> ipv4_address_t;
typedef bit<48> mac_address_t;

/* Ethernet, IPv4, UDP */
const bit<16> ETHERTYPE_IPV4     = 0x0800;
const bit<8>  IPV4_NO_OPTIONS    = 0x45;   // version 4, header length 5
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

const bit<4> CONTRIBUTION   = 1;
const bit<4> RESULT         = 2;   // a contribution's type plus one
const bit<4> SCALE          = 3;
const bit<4> SCALE_RESULT   = 4;   // a scale contribution's type plus one
const bit<4> FETCH          = 5;
const bit<4> FETCHED        = 6;
const bit<4> SCALE_FETCHED  = 7;

/* Drop reasons: indices of the counter FabricIngress.drops */
const bit<8> DROP_TRUNCATED    = 0;
const bit<8> DROP_MALFORMED    = 1;
const bit<8> DROP_BAD_CHECKSUM = 2;
const bit<8> DROP_NOT_IPV4     = 3;
const bit<8> DROP_TTL_EXPIRED  = 4;
const bit<8> DROP_NO_ROUTE     = 5;
const bit<8> DROP_NO_SERVICE   = 6;
const bit<8> DROP_UNKNOWN_JOB  = 7;
const bit<8> DROP_NOT_MEMBER   = 8;
const bit<8> DROP_NOT_PARENT   = 9;
const bit<8> DROP_BAD_SLOT     = 10;
const bit<8> DROP_DUPLICATE    = 11;
const bit<8> DROP_LATE         = 12;

/* What ingress has decided for a packet */
enum bit<2> Fate {
    ROUTE = 0,   // look up its destination address
    SEND  = 1,   // an egress port or a multicast group is chosen
    KEEP  = 2,   // summed into a slot; nothing leaves
    DROP  = 3    // counted under meta.drop_reason
}

/* INT-MD 2.1 */
const bit<4>  INT_TYPE_MD      = 1;
const bit<4>  INT_VERSION      = 2;
const bit<16> INT_DOMAIN       = 0x5745;
const bit<32> UNAVAILABLE      = 0xFFFFFFFF;
const bit<64> NS_PER_US        = 1000;

#endif
