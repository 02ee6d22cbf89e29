/* Priority of early layers: the checks of an `exchange_order`. */
#include "plan_check.h"

#include "ty_base.h"

ty_status ty_plan_check_order(const plan_checker *c)
{
    const ty_plan *p = c->plan;
    const char *why;
    ty_status status = TY_OK;
    bool *is_met;

    if (p->exchange_order == NULL)
        return TY_OK;
    if ((why = ty_plan_refusal(TY_AXIS_PRIORITY, p)) != NULL)
        return ty_plan_complain(c, "/exchange_order: found one, expected none: %s", why);
    is_met = ty_alloc(p->bucket_count, sizeof *is_met);
    TY_TRY(ty_check_memory(is_met != NULL, c->error));
    for (uint32_t i = 0; i < p->bucket_count && status == TY_OK; i++) {
        const uint32_t bucket = p->exchange_order[i];
        if (bucket >= p->bucket_count)
            status =
                ty_plan_complain(c, "/exchange_order/%u: found %u, expected one of the %u buckets",
                                 i, bucket, p->bucket_count);
        else if (is_met[bucket])
            status = ty_plan_complain(
                c, "/exchange_order/%u: found bucket %u twice, expected each once", i, bucket);
        else
            is_met[bucket] = true;
    }
    ty_free(is_met);
    return status;
}
