/* What kind of switch this is: a Tofino as TNA has it. topologies/targets.py says the same to the controller. */

#ifndef WEIR_TARGET_P4
#define WEIR_TARGET_P4

/* Lanes of a message. Two share a register; for more than these a Tofino 1 has no containers (docs/tofino.md). */
#define NARROW_LANES 32
#define LANES 32
const bit<8>  WIDTH               = LANES / 32;   // as PRESENT's `reserved` counts them

/* The PCIe port of the switch's own processor (on Tofino 1 320 where the chip has four pipes, 192 where it has two), and the port of
 * each pipe that leads back into it */
#if __TARGET_TOFINO__ == 2
#define RECIRCULATION_PORT 6
#define DEFAULT_CPU_PORT 0
#else
#define RECIRCULATION_PORT 68
#define DEFAULT_CPU_PORT 320
#endif
#ifndef CPU_PORT_NUMBER
#define CPU_PORT_NUMBER DEFAULT_CPU_PORT
#endif

/* Of what egress mirrors: finished probes, and what becomes a report; and of what ingress does: stacks, as they came */
#define MIRROR_TYPE 1
#define REPORT_MIRROR_TYPE 2
#define STACK_MIRROR_TYPE 3

/* Of what ingress mirrors: cut behind the longest stack that comes off here, and TCP's header behind it */
const bit<32> STACK_SESSION       = 249;
const bit<16> STACK_INNER_BYTES   = 140;

/* Of the action selector in routing.p4 */
#define ECMP_GROUP_SIZE 64
#define ECMP_GROUPS 1024

/* What a packet's length in egress has beside the frame: bridged_t, and the frame's checksum */
const bit<16> HANDED_BYTES        = 14;

const bit<9> CPU_PORT             = CPU_PORT_NUMBER;
const bit<7> RECIRCULATION        = RECIRCULATION_PORT;
const bit<9> RECIRCULATION_PORTS  = RECIRCULATION_PORT;   // with any pipe in the two upper bits
const bit<9> RECIRCULATION_MASK   = 0x07F;

#endif
