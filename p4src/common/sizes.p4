/* Every size that all targets share: slots, tables, headers in bytes. LANES is the target's; numbers with a meaning are in ids.p4. */

#ifndef WEIR_SIZES_P4
#define WEIR_SIZES_P4

/* Slots of a node, shared by its jobs: a job has the slots slot_base … slot_base + slots - 1, and the control plane sees that
   they end at or below this. */
#define AGGREGATION_SLOTS 1024

#define PORTS 512
#define DROP_REASONS 18

/* Tables */
#define NODE_ADDRESSES 16
#define JOBS 1024
#define MEMBERS 8192
#define PARENTS 1024
#define ROUTES 8192
#define ECMP_MEMBERS 4096
#define ECMP_GROUP_WIDTH 14
#define TRAFFIC_CLASSES 64
#define REPLICAS 8192
#define WATCHLIST 1024
#define DROP_WATCHLIST 256
#define SINKS 1024
#define QUEUES 4096              // PORTS, eight priorities each
#define FLOWS 4096               // whose last reported values a node keeps
#define BUCKETS 1024   // of policers, at most one for each

/* Bytes */
const bit<16> ETHERNET_BYTES = 14;
const bit<16> MTU            = 1500;   // of an IPv4 packet, on ports that have no other one
const bit<16> IPV4_BYTES     = 20;
const bit<16> UDP_BYTES      = 8;

/* UDP length of messages: 8 + 28, and 4 a lane */
const bit<16> UDP_BYTES_HEADER_ONLY = 36;
const bit<16> UDP_BYTES_NARROW      = 36 + 4 * NARROW_LANES;
#if LANES > NARROW_LANES
const bit<16> UDP_BYTES_WITH_LANES  = 36 + 4 * LANES;
#endif

/* INT */
const bit<9>  INT_BEYOND_SHIM = 0x100;   // the bit of a number of words that the shim's length has no room for
const bit<8>  INT_MD_WORDS    = 3;
const bit<16> INT_FIXED_BYTES = 16;      // shim and header
const bit<16> INT_LONG_BYTES  = 24;      // and a marker or a UDP header in front
const bit<16> MARKER_BYTES    = 8;

/* Telemetry reports */
const bit<16> REPORT_FIXED_WORDS  = 2;      // RepMdBits … DSMdstatus
const bit<16> REPORT_HEADER_BYTES = 48;     // IPv4, UDP, group header, the fixed part of an individual report
const bit<16> REPORT_INNER_BYTES  = 64;     // of a packet without a stack: IPv4, TCP or UDP, INT-MX
const bit<16> REPORT_STACK_BYTES  = 60;     // around the INT headers: IPv4, TCP in front, TCP behind
const bit<16> PACKET_IN_BYTES     = 2;

#endif
