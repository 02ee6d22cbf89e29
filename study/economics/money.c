/* Cost of a cluster per second, in money and in energy. */
#include "economics_catalogue.h"
#include "prices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SECONDS_PER_HOUR 3600.0
#define JOULES_PER_KWH 3.6e6

/* Rated power of all hosts; 0 if neither a host nor its devices have one.
 * @param device_w power per device, instead of all ratings; 0: not specified */
static double rated_power_w(const ty_cluster *cluster, double host_overhead, double device_w)
{
    double sum = 0;

    if (device_w > 0)
        return device_w * (1 + host_overhead) * ty_cluster_device_count(cluster);

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

/* Price of all devices per hour, its kind and its note. Looks up runs of equal devices once. */
static ty_status add_prices(const ty_cluster *cluster, const ty_prices *prices,
                            ty_cluster_rates *out, double *hour_usd, ty_error *error)
{
    const uint32_t devices = ty_cluster_device_count(cluster);
    const ty_host_type *host = NULL;
    const ty_device_type *device = NULL;
    uint32_t *host_devices = ty_alloc(ty_cluster_host_count(cluster) + 1, sizeof *host_devices);
    uint32_t shared = 0, alike = 0; /* devices since the last look-up */
    ty_price price = {0};
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(host_devices != NULL, error));
    *hour_usd = 0;
    out->has_price = devices > 0;
    for (uint32_t d = 0; d < devices; d++)
        host_devices[ty_cluster_device_host(cluster, d)]++;
    for (uint32_t d = 0; d < devices && out->has_price; d++) {
        const uint32_t at = ty_cluster_device_host(cluster, d);
        const ty_host_type *own = ty_cluster_host_type(cluster, at);
        if (d == 0 || own != host || ty_cluster_device_type(cluster, d) != device ||
            host_devices[at] != shared) {
            *hour_usd += price.usd_per_device_hour * alike;
            alike = 0;
            host = own;
            device = ty_cluster_device_type(cluster, d);
            shared = host_devices[at];
            TY_CHECK(ty_price_of(prices, host, shared, device, &price, error), status, done);
            if (d == 0) {
                memcpy(out->price_kind, price.kind, sizeof price.kind);
                memcpy(out->price_note, price.note, sizeof price.note);
            } else if (strcmp(out->price_kind, price.kind) != 0) {
                snprintf(out->price_kind, sizeof out->price_kind, "mixed");
            }
        }
        alike++;
        out->has_price = price.kind[0] != '\0';
    }
    *hour_usd += price.usd_per_device_hour * alike;
done:
    ty_free(host_devices);
    return status;
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
    const uint32_t devices = ty_cluster_device_count(cluster);
    ty_cluster_rates result = {0};
    ty_economics_catalogue known;
    ty_prices prices = {0};
    double hour_usd = rates->price_usd_per_device_hour * devices;
    double rated_w, effectiveness, idle, power = 0;
    bool is_factor = false;
    ty_status status;

    TY_CHECK(check(load, rates, error), status, done);
    TY_CHECK(ty_economics_catalogue_load(&known, error), status, done);
    if (rates->power != NULL)
        TY_CHECK(ty_read_or_factor(rates->power, "W", "power", &power, &is_factor, error), status,
                 done);
    if (rates->price_usd_per_device_hour > 0) {
        result.has_price = true;
        snprintf(result.price_kind, sizeof result.price_kind, "given");
    } else {
        TY_CHECK(ty_prices_open(rates->price, &prices, error), status, done);
        TY_CHECK(add_prices(cluster, &prices, &result, &hour_usd, error), status, done);
    }
    effectiveness = rates->power_usage_effectiveness > 0 ? rates->power_usage_effectiveness : 1;
    idle = known.idle_power_share;
    rated_w = rated_power_w(cluster, known.host_power_overhead, is_factor ? 0 : power) *
              (is_factor ? power : 1) * effectiveness;
    result.power_w = (ty_interval){power_at(rated_w, idle, known.busy_power_share.low, load),
                                   power_at(rated_w, idle, known.busy_power_share.expected, load),
                                   power_at(rated_w, idle, known.busy_power_share.high, load)};
    if (result.has_price) {
        result.price_usd_per_device_hour = hour_usd / devices;
        result.price_usd_per_s = hour_usd / SECONDS_PER_HOUR + result.power_w.expected /
                                                                   JOULES_PER_KWH *
                                                                   rates->price_usd_per_kwh;
    } else {
        result.price_kind[0] = '\0';
    }
    snprintf(result.assumption, sizeof result.assumption,
             "power: %s of rated power idle %.0f %%, busy %.0f %%; building x %.2f",
             rated_w > 0 ? "share" : "unknown; share", idle * 100,
             known.busy_power_share.expected * 100, effectiveness);
    *out = result;
done:
    ty_prices_clear(&prices);
    return status;
}
