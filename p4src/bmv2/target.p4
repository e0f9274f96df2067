/* What kind of switch this is: v1model as bmv2 and the emulator have it. topologies/targets.py says the same to the controller. */

#ifndef WEIR_TARGET_P4
#define WEIR_TARGET_P4

/* Lanes of a message: NARROW_LANES, or that and WIDE_LANES more, if the switch has them; a job's messages all have as many as the
 * narrowest switch of its fabric. */
#define NARROW_LANES 32
#ifndef LANES
#define LANES 256
#endif

const bit<9>  CPU_PORT     = 510;
const bit<32> INGRESS_CLONE = 1;    // standard_metadata.instance_type
const bit<32> EGRESS_CLONE  = 2;

#endif
