/* What the files of ty_plan_check share, and the check of a plan inside a document. Internal to
 * core. */
#ifndef TY_PLAN_CHECK_H
#define TY_PLAN_CHECK_H

#include "ty_plan.h"

/** @param place what messages begin with, as ty_json_place gives it: "job.json:/plan" */
ty_status ty_plan_check_at(const ty_plan *plan, const char *place, ty_error *error) TY_MUST_CHECK;

typedef struct plan_checker {
    const ty_plan *plan;
    const char *place;
    ty_error *error;
} plan_checker;

/** TY_EPARSE: "plan.json:/stages/1/replicas: found 3, expected ..." */
ty_status ty_plan_complain(const plan_checker *checker, const char *format, ...) TY_PRINTF(2, 3);

/** Of a plan whose stages are right. */
ty_status ty_plan_check_buckets(const plan_checker *checker) TY_MUST_CHECK;
/** Of a plan whose stages and buckets are right. */
ty_status ty_plan_check_servers(const plan_checker *checker) TY_MUST_CHECK;
ty_status ty_plan_check_order(const plan_checker *checker) TY_MUST_CHECK;

#endif
