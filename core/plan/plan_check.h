/* Shared by the files of ty_plan_check, and the check of a plan inside a document. Internal to
 * core. */
#ifndef TY_PLAN_CHECK_H
#define TY_PLAN_CHECK_H

#include "ty_plan.h"

/** @param place prefix of messages, from ty_json_place: "job.json:/plan" */
ty_status ty_plan_check_at(const ty_plan *plan, const char *place, ty_error *error) TY_MUST_CHECK;

typedef struct plan_checker {
    const ty_plan *plan;
    const char *place;
    ty_error *error;
} plan_checker;

/** TY_EPARSE: "plan.json:/stages/1/replicas: found 3, expected ..." */
ty_status ty_plan_complain(const plan_checker *checker, const char *format, ...) TY_PRINTF(2, 3);

/** For a plan with valid stages. */
ty_status ty_plan_check_buckets(const plan_checker *checker) TY_MUST_CHECK;
/** For a plan with valid stages and buckets. */
ty_status ty_plan_check_servers(const plan_checker *checker) TY_MUST_CHECK;
ty_status ty_plan_check_order(const plan_checker *checker) TY_MUST_CHECK;

#endif
