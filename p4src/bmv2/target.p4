/* What kind of switch this is: v1model as bmv2 and the emulator have it. topologies/targets.py says the same to the controller. */

#ifndef WEIR_TARGET_P4
#define WEIR_TARGET_P4

/* Lanes of a message; a number that common/repeat.p4 can count to. */
#ifndef LANES
#define LANES 256
#endif

const bit<9>  CPU_PORT     = 510;
const bit<32> EGRESS_CLONE = 2;     // standard_metadata.instance_type

#endif
