/* What a second of a cluster costs, in money and in energy. */
#include "economics_catalogue.h"

#include <math.h>
#include <stdio.h>

#define SECONDS_PER_HOUR 3600.0
#define JOULES_PER_KWH 3.6e6

/* Rated power of all hosts; 0 where neither a host nor its devices have one. */
static double rated_power_w(const ty_cluster *cluster, double host_overhead)
{
    double sum = 0;

    for (uint32_t h = 0; h < ty_cluster_host_count(cluster); h++) {
        const ty_host_type *type = ty_cluster_host_type(cluster, h);
        if (type != NULL && type->power_w > 0)
            sum += type->power_w;
    }
    for (uint32_t d = 0; d < ty_cluster_device_count(cluster); d++) {
        const ty_host_type *type =
            ty_cluster_host_type(cluster, ty_cluster_device_host(cluster, d));
        double power_w = ty_cluster_device_type(cluster, d)->power_w;
        if (type != NULL && type->power_w > 0)
            continue;
        if (!(power_w > 0))
            return 0;
        sum += power_w * (1 + host_overhead);
    }
    return sum;
}

static double power_at(double rated_w, double idle, double busy, double load)
{
    return rated_w * (idle + (busy - idle) * load);
}

/* Hosts' prices per hour; a NaN where one has none. */
static double host_prices(const ty_cluster *cluster)
{
    double sum = 0;

    for (uint32_t h = 0; h < ty_cluster_host_count(cluster); h++) {
        const ty_host_type *type = ty_cluster_host_type(cluster, h);
        if (type == NULL || type->price_date == NULL)
            return NAN;
        sum += type->price_usd_per_hour;
    }
    return sum;
}

static ty_status check(double load, const ty_cost_rates *rates, ty_error *error)
{
    if (!(load >= 0 && load <= 1))
        return ty_fail(error, TY_EINVAL, "found a load of %g, expected a share from 0 to 1", load);
    if (!(rates->price_usd_per_device_hour >= 0) || !(rates->price_usd_per_kwh >= 0) ||
        isinf(rates->price_usd_per_device_hour) || isinf(rates->price_usd_per_kwh))
        return ty_fail(
            error, TY_EINVAL,
            "found prices of %g USD a device and hour and %g USD a kWh, expected both >= "
            "0",
            rates->price_usd_per_device_hour, rates->price_usd_per_kwh);
    if (rates->power_usage_effectiveness != 0 && !(rates->power_usage_effectiveness >= 1))
        return ty_fail(error, TY_EINVAL,
                       "found a power usage effectiveness of %g, expected at least 1",
                       rates->power_usage_effectiveness);
    return TY_OK;
}

ty_status ty_cluster_rates_of(const ty_cluster *cluster, double load, const ty_cost_rates *rates,
                              ty_cluster_rates *out, ty_error *error)
{
    ty_cluster_rates result = {0};
    ty_economics_catalogue known;
    double hour_usd, rated_w, effectiveness, idle;
    ty_status status = check(load, rates, error);

    if (status == TY_OK)
        status = ty_economics_catalogue_load(&known, error);
    if (status != TY_OK)
        return status;
    effectiveness = rates->power_usage_effectiveness > 0 ? rates->power_usage_effectiveness : 1;
    idle = known.idle_power_share;
    rated_w = rated_power_w(cluster, known.host_power_overhead) * effectiveness;
    result.power_w = (ty_interval){power_at(rated_w, idle, known.busy_power_share.low, load),
                                   power_at(rated_w, idle, known.busy_power_share.expected, load),
                                   power_at(rated_w, idle, known.busy_power_share.high, load)};
    hour_usd = rates->price_usd_per_device_hour > 0
                   ? rates->price_usd_per_device_hour * ty_cluster_device_count(cluster)
                   : host_prices(cluster);
    result.has_price = !isnan(hour_usd);
    if (result.has_price)
        result.price_usd_per_s = hour_usd / SECONDS_PER_HOUR + result.power_w.expected /
                                                                   JOULES_PER_KWH *
                                                                   rates->price_usd_per_kwh;
    snprintf(result.assumption, sizeof result.assumption,
             "power: %s of rated power idle %.0f %%, busy %.0f %%; building x %.2f",
             rated_w > 0 ? "share" : "unknown; share", idle * 100,
             known.busy_power_share.expected * 100, effectiveness);
    *out = result;
    return TY_OK;
}
