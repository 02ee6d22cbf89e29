/* Time and cost of training, as text. */
#include "ty_plan.h"

#define HOURS_PER_DAY 24
#define FEWEST_DAYS 2

void ty_training_cost_line(const ty_training_cost *cost, ty_text *text)
{
    const bool is_days = cost->days >= FEWEST_DAYS;
    char time[32], count[32], usd[32];

    ty_format_tokens(cost->tokens > 0 ? cost->tokens : cost->samples, count);
    ty_format_days(is_days ? cost->days : cost->days * HOURS_PER_DAY, time);
    ty_text_addf(text, "Cost        %s %s", time, is_days ? "days" : "hours");
    if (cost->price_kind[0] != '\0') {
        ty_format_usd(cost->cost_usd, usd);
        ty_text_addf(text, ", %s", usd);
    }
    ty_text_addf(text, " for %s %s", count, cost->tokens > 0 ? "tokens" : "samples");
    if (cost->price_kind[0] != '\0') {
        ty_format_usd(cost->price_usd_per_device_hour, usd);
        ty_text_addf(text, " at %s per GPU-hour\n", usd);
    } else {
        ty_text_add(text, "; give a price with --price\n");
    }
}
