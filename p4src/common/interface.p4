/*
 * Ids of what the control plane names, so that none moves when another is added: once given, an id is never changed nor used
 * again. They are unique among tables, among actions, and so on; p4c puts the kind into the top byte.
 */

#ifndef WEIR_INTERFACE_P4
#define WEIR_INTERFACE_P4

/* Tables that the controller writes */
#define NODE_ADDRESS_TABLE_ID    1
#define TRAFFIC_CLASS_TABLE_ID   2
#define ROUTES_TABLE_ID          3
#define JOBS_TABLE_ID            4
#define MEMBERS_TABLE_ID         5
#define PARENTS_TABLE_ID         6
#define REPLICAS_TABLE_ID        7
#define MARKING_TABLE_ID         8
#define PROBE_SINKS_TABLE_ID     9
#define NODE_TABLE_ID            10
#define POLICERS_TABLE_ID        11
#define HOSTS_TABLE_ID           12

#define WATCHLIST_TABLE_ID       16
#define LINKS_TABLE_ID           17
#define INGRESS_NAMES_TABLE_ID   18
#define SINKS_TABLE_ID           19
#define QUEUE_WATCH_TABLE_ID     20
#define FLOW_STEPS_TABLE_ID      21
#define DROP_WATCH_TABLE_ID      22
#define DESTINATION_TABLE_ID     23
#define EDGES_TABLE_ID           24
#define MARKS_TABLE_ID           25
#define FREE_SLOTS_TABLE_ID      26

/* Tables with constant entries */
#define FORMATS_TABLE_ID         32
#define STEPS_TABLE_ID           33
#define HEADER_SUMS_TABLE_ID     34
#define LANE_SUMS_TABLE_ID       35
#define ECN_MARKS_TABLE_ID       36
#define BASELINE_HIGH_TABLE_ID   37
#define BASELINE_LOW_TABLE_ID    38
#define DOMAIN_HIGH_TABLE_ID     39
#define DOMAIN_LOW_TABLE_ID      40
#define ROOM_TABLE_ID            41
#define WIDE_LANE_SUMS_TABLE_ID  42
#define BARRED_TYPES_TABLE_ID    43
#define WIDTHS_TABLE_ID          44
#define SHAPES_TABLE_ID          45
#define PRUNES_TABLE_ID          46
#define ENCAPSULATIONS_TABLE_ID  64
#define REPORT_WORDS_TABLE_ID    66
#define LAST_WORDS_TABLE_ID      67

/* Actions that the controller calls */
#define TO_NODE_ACTION_ID        1
#define SET_CLASS_ACTION_ID      2
#define FORWARD_ACTION_ID        3
#define INNER_NODE_ACTION_ID     4
#define SWITCH_ROOT_ACTION_ID    5
#define ACCEPT_ACTION_ID         6
#define REPLICATE_ACTION_ID      7
#define DELIVER_ACTION_ID        8
#define BOUND_QUEUE_ACTION_ID    9
#define REPORT_ACTION_ID         10
#define IDENTIFY_ACTION_ID       11
#define POLICE_ACTION_ID         12
#define ADMIT_ACTION_ID          13
#define EMBED_MD_ACTION_ID       16
#define EMBED_MX_ACTION_ID       17
#define EXPORT_ACTION_ID         18
#define IGNORE_ACTION_ID         19
#define NAME_LINK_ACTION_ID      20
#define NAME_INGRESS_ACTION_ID   21
#define STRIP_ACTION_ID          22
#define WATCH_QUEUE_ACTION_ID    23
#define SET_STEPS_ACTION_ID      24
#define REPORT_DROP_ACTION_ID    25
#define IGNORE_DROP_ACTION_ID    26
#define ADDRESS_ACTION_ID        27
#define CLEAR_MARK_ACTION_ID     28
#define RECOGNISE_ACTION_ID      29
#define TELL_FREE_SLOTS_ACTION_ID 30

/* Actions of the program itself */
#define INGRESS_REFUSE_ACTION_ID     32
#define ROUTING_REFUSE_ACTION_ID     33
#define AGGREGATION_REFUSE_ACTION_ID 34
#define CONTRIBUTION_ACTION_ID       35
#define RESULT_ACTION_ID             36
#define CLAIM_ACTION_ID              37
#define GATHER_ACTION_ID             38
#define KEEP_ACTION_ID               39
#define TO_PARENT_ACTION_ID          40
#define TO_CHILDREN_ACTION_ID        41
#define TO_ASKER_ACTION_ID           42
#define RESTART_HEADER_ACTION_ID     43
#define ADD_HEADER_ACTION_ID         44
#define REPLAY_HEADER_ACTION_ID      45
#define RESTART_LANES_ACTION_ID      46
#define ADD_LANES_ACTION_ID          47
#define REPLAY_LANES_ACTION_ID       48
#define END_ACTION_ID                49
#define TO_CPU_ACTION_ID             50
#define LIMIT_WINDOW_ACTION_ID       51
#define MARK_MESSAGE_ACTION_ID       52
#define MARK_PACKET_ACTION_ID        53
#define ASK_BASELINE_HIGH_ACTION_ID  54
#define ASK_BASELINE_LOW_ACTION_ID   55
#define ASK_DOMAIN_HIGH_ACTION_ID    56
#define ASK_DOMAIN_LOW_ACTION_ID     57
#define ADD_UP_ACTION_ID             58
#define COMPARE_ACTION_ID            59
#define EXCEED_HOPS_ACTION_ID        60
#define EXCEED_MTU_ACTION_ID         61
#define GROW_ACTION_ID               62
#define COUNT_BYTES_ACTION_ID        63
#define SHOW_BYTES_ACTION_ID         64
#define PUSH_NODE_ID_ACTION_ID       65
#define PUSH_PORTS_ACTION_ID         66
#define PUSH_LATENCY_ACTION_ID       67
#define PUSH_QUEUE_ACTION_ID         68
#define PUSH_INGRESS_TIME_ACTION_ID  69
#define PUSH_EGRESS_TIME_ACTION_ID   70
#define PUSH_BYTES_ACTION_ID         71
#define COUNT_HOP_ACTION_ID          72
#define RESTART_WIDE_LANES_ACTION_ID 73
#define ADD_WIDE_LANES_ACTION_ID     74
#define REPLAY_WIDE_LANES_ACTION_ID  75
#define FILL_BUCKET_ACTION_ID        76
#define FILL_VIRTUAL_QUEUE_ACTION_ID 77
#define POLICING_REFUSE_ACTION_ID    78
#define ADMISSION_REFUSE_ACTION_ID   79
#define SAMPLE_ACTION_ID             96
#define MEASURE_ACTION_ID            97
#define REWRITE_PORT_ACTION_ID       98
#define WRAP_ACTION_ID               99
#define SET_DSCP_ACTION_ID           100
#define INSERT_MARKER_ACTION_ID      101
#define PUSH_MD_ACTION_ID            102
#define PUSH_MX_ACTION_ID            103
#define EXPORT_INSTEAD_ACTION_ID     104
#define UNWRAP_ACTION_ID             105
#define RESTORE_DSCP_ACTION_ID       106
#define FORGET_INT_ACTION_ID         107
#define JUDGE_PERIOD_ACTION_ID       108
#define NUMBER_ACTION_ID             109
#define REPORT_STACK_ACTION_ID       110
#define COUNT_WINDOW_ACTION_ID       111
#define SHOW_WINDOW_ACTION_ID        112
#define PUSH_INTERFACES_ACTION_ID    113
#define PUSH_UTILISATION_ACTION_ID   114
#define PUSH_FREE_SLOTS_ACTION_ID    115
#define CAPTURE_ACTION_ID            116
#define COMPARE_DEPTH_ACTION_ID      117
#define COMPARE_LATENCY_ACTION_ID    118
#define COMPARE_QUEUE_TIME_ACTION_ID 119
#define CLAIM_FLOW_ACTION_ID         120
#define COMPARE_FLOW_DEPTH_ACTION_ID 121
#define COMPARE_FLOW_LATENCY_ACTION_ID 122
#define COUNT_WORDS_ACTION_ID        123
#define COUNT_LAST_WORDS_ACTION_ID   124
#define COUNT_REPORT_ACTION_ID       125
#define SIZE_ACTION_ID               126
#define BUILD_ACTION_ID              127
#define ASK_HEADER_ACTION_ID         132
#define FLAG_EVENT_ACTION_ID         133
#define FORGO_ACTION_ID              134
#define RESTORE_UDP_ACTION_ID        135
#define SAY_FLOW_ACTION_ID           142
#define SAY_SINK_ACTION_ID           143
#define SAY_QUEUE_ACTION_ID          144
#define REFUSE_MARK_ACTION_ID        145
#define FIND_QUEUE_ACTION_ID         146
#define FIND_FLOW_ACTION_ID          147
#define EXPORT_OWN_ACTION_ID         148
#define BEGIN_ANEW_ACTION_ID         149
#define BEGIN_REPORT_ACTION_ID       150
#define SAVE_STACK_ACTION_ID         155
#define PRESENT_ACTION_ID            165
#define EXPAND_ACTION_ID             166
#define CONTRACT_ACTION_ID           167
#define LENGTHEN_ACTION_ID           168
#define REFUSE_WIDTH_ACTION_ID       169
#define EXPAND_WIDE_ACTION_ID        170
#define PRUNE_ACTION_ID              171
#define RECALL_ACTION_ID             172
#define FIND_WANTING_ACTION_ID       173
#define GATHER_WANTING_ACTION_ID     174

/* Action profiles, counters */
#define ECMP_PROFILE_ID          1
#define DROPS_COUNTER_ID         1

/* Registers. Lane i's is 1 and i's digits behind each other. */
#define SLOT_ROUND_REGISTER_ID         2000
#define SLOT_CONTRIBUTORS_REGISTER_ID  2001
#define FLAGS_REGISTER_ID              2002
#define WINDOW_REGISTER_ID             2003
#define EXPONENT_REGISTER_ID           2004
#define WEIGHT_REGISTER_ID             2005
#define CHECK_REGISTER_ID              2006
#define BYTES_SENT_REGISTER_ID         2007
#define BUCKETS_REGISTER_ID            2008
#define VIRTUAL_QUEUES_REGISTER_ID     2009
#define PORT_WINDOW_REGISTER_ID        2016
#define SAMPLES_REGISTER_ID            2017
#define QUEUE_DEPTH_REGISTER_ID        2018
#define QUEUE_LATENCY_REGISTER_ID      2019
#define QUEUE_TIME_REGISTER_ID         2020
#define FLOW_REGISTER_ID               2021
#define FLOW_DEPTH_REGISTER_ID         2022
#define FLOW_LATENCY_REGISTER_ID       2023
#define SINK_FLOW_REGISTER_ID          2024
#define PACKET_NUMBER_REGISTER_ID      2025
#define REPORT_SEQUENCE_REGISTER_ID    2026
#define SLOT_WANTING_REGISTER_ID       2027
#define LANE_REGISTER_ID(i)            1##i

/* Headers of packets from and to the control plane */
#define PACKET_IN_ID             1
#define PACKET_OUT_ID            2

#endif
