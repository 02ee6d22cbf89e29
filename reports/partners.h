/**
 * @file partners.h
 * Which instruction of which stage replica another one meets: the send of a receive, the fellow
 * members of a collective. Internal to reports/.
 */
#ifndef TY_REPORTS_PARTNERS_H
#define TY_REPORTS_PARTNERS_H

#include "ty_core.h"

typedef struct partners partners;

ty_status ty_partners_new(const ty_plan *plan, const ty_program *program, partners **out,
                          ty_error *error) TY_MUST_CHECK;
void ty_partners_free(partners *p);

/** The send that a receive of `stage_replica` is matched with; UINT32_MAX if there is none. */
uint32_t ty_partners_send(const partners *p, uint32_t stage_replica, const ty_instruction *receive,
                          uint32_t *sender);

/** The partner that an instruction had to wait for: the send of a receive, or the last member to
 * reach a collective, which may be itself; NULL for an instruction that meets nobody. */
const ty_event *ty_partners_last(const partners *p, const ty_timeline *timeline,
                                 const ty_event *event);

/** When the last of those that an instruction meets was ready for it, in one step of a timeline;
 * the event's own start for an instruction that meets nobody. */
double ty_partners_ready_s(const partners *p, const ty_timeline *timeline, const ty_event *event);

#endif
