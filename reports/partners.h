/**
 * @file partners.h
 * Finds the partners of an instruction: the send of a receive, or the other members of a
 * collective, with their stage replicas. Internal to reports/.
 */
#ifndef TY_REPORTS_PARTNERS_H
#define TY_REPORTS_PARTNERS_H

#include "ty_core.h"

typedef struct partners partners;

ty_status ty_partners_new(const ty_plan *plan, const ty_program *program, partners **out,
                          ty_error *error) TY_MUST_CHECK;
void ty_partners_free(partners *p);

/** Index of the send that matches a receive of `stage_replica`; UINT32_MAX if there is none. */
uint32_t ty_partners_send(const partners *p, uint32_t stage_replica, const ty_instruction *receive,
                          uint32_t *sender);

/** Finds the partner that an instruction waited for: the send of a receive, or the last member to
 * reach a collective, which may be itself. NULL for an instruction without partners. */
const ty_event *ty_partners_last(const partners *p, const ty_timeline *timeline,
                                 const ty_event *event);

/** Time at which the last partner of an instruction was ready in a step of a timeline; the event's
 * own start without partners. */
double ty_partners_ready_s(const partners *p, const ty_timeline *timeline, const ty_event *event);

#endif
