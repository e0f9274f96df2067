/* What kind of switch this is: Tofino 1 as TNA has it. topologies/targets.py says the same to the controller. */

#ifndef WEIR_TARGET_P4
#define WEIR_TARGET_P4

/* Lanes of a message. Two share a register; for more than these the chip has no containers (docs/tofino.md). */
#define NARROW_LANES 32
#define LANES 32

/* The PCIe port of the switch's own processor: 320 where the chip has four pipes, 192 where it has two. */
#ifndef CPU_PORT_NUMBER
#define CPU_PORT_NUMBER 320
#endif

/* Of what egress mirrors */
#define MIRROR_TYPE 1

/* Of the action selector in routing.p4 */
#define ECMP_GROUP_SIZE 64
#define ECMP_GROUPS 1024

/* What a packet's length in egress has beside the frame: bridged_t, and the frame's checksum */
const bit<16> HANDED_BYTES        = 14;

const bit<9> CPU_PORT             = CPU_PORT_NUMBER;
const bit<7> RECIRCULATION        = 68;       // of each pipe: what leaves there comes in there again
const bit<9> RECIRCULATION_PORTS  = 68;       // with any pipe in the two upper bits
const bit<9> RECIRCULATION_MASK   = 0x07F;

#endif
