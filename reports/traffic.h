/**
 * @file traffic.h
 * Bytes that a step of a program moves: between devices, and over the links of their routes.
 * Counted from the program: sends with their payload, ring collectives with what each edge carries,
 * trees with the payload up and down every edge. What the lanes of a tensor parallel rank exchange
 * inside a pass is not among the program's instructions and is not counted. Internal to reports/.
 */
#ifndef TY_REPORTS_TRAFFIC_H
#define TY_REPORTS_TRAFFIC_H

#include "ty_core.h"
#include "ty_topologies.h"

typedef struct flow {
    uint32_t from, to; /* devices */
    double bytes;      /* of a step */
} flow;

typedef struct traffic {
    uint32_t flow_count, capacity;
    flow *flows;        /* each pair once, ascending by `from` */
    double *link_bytes; /* [links][2]: in the direction of the link's from -> to, and back */
} traffic;

ty_status ty_traffic_count(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                           const ty_cluster *cluster, traffic *out, ty_error *error) TY_MUST_CHECK;
void ty_traffic_clear(traffic *t);

#endif
