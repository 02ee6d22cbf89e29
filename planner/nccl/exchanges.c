/* Collectives that frameworks build from simpler ones. Each is a sum of consecutive phases. */
#include "ty_collective_model.h"
#include "ty_program.h"

#include <math.h>

ty_exchange_time ty_hierarchical_all_reduce(const ty_exchange_links *links, double bytes)
{
    const ty_collective_terms host =
        ty_collective_terms_of(TY_ALL_REDUCE, TY_RING, links->per_host);
    const ty_collective_terms rail = ty_collective_terms_of(TY_ALL_REDUCE, TY_RING, links->hosts);
    ty_exchange_time t = {.latency_s = host.steps * links->host_latency_s +
                                       rail.steps * links->rail_latency_s};

    if (links->per_host > 1)
        t.host_s = host.edge_share * bytes / links->host_bytes_per_s;
    if (links->hosts > 1)
        t.rail_s = rail.edge_share * bytes / links->per_host / links->rail_bytes_per_s;
    t.seconds = t.latency_s + t.host_s + t.rail_s;
    return t;
}

ty_exchange_time ty_block_manager_all_reduce(const ty_exchange_links *links, double bytes)
{
    double g = links->per_host, n = g * links->hosts;
    ty_exchange_time t = {0};

    if (g > 1) {
        t.latency_s = 2 * links->host_latency_s;
        t.host_s = 2 * (g - 1) / n * bytes / links->host_bytes_per_s;
    }
    if (links->hosts > 1) {
        t.latency_s = fmax(t.latency_s, 2 * links->rail_latency_s);
        t.rail_s = 2 * (n - g) / n * bytes / links->rail_bytes_per_s;
    }
    t.seconds = t.latency_s +
                fmax(fmax(t.host_s, t.rail_s), n > 1 ? 2 * bytes / links->exchange_bytes_per_s : 0);
    return t;
}

ty_status ty_parameter_server_seconds(const ty_parameter_servers *s, double bytes, double *seconds,
                                      ty_error *error)
{
    double workers = s->workers, servers = s->servers, way_s;
    const double share = s->largest_share > 0 ? s->largest_share : 1 / servers;

    if (s->workers == 0 || s->servers == 0)
        return ty_fail(error, TY_EINVAL, "parameter server: found %u workers and %u servers",
                       s->workers, s->servers);
    if (s->place == TY_SERVERS_COLOCATED && s->servers > s->workers)
        return ty_fail(error, TY_EINVAL,
                       "parameter server: found %u servers on the hosts of %u workers, expected at "
                       "most one on each",
                       s->servers, s->workers);
    if (!(bytes >= 0) || !(s->worker_bytes_per_s > 0) || !(s->latency_s >= 0) ||
        (s->place == TY_SERVERS_DEDICATED && !(s->server_bytes_per_s > 0)))
        return ty_fail(error, TY_EINVAL,
                       "parameter server: found %g bytes, %g and %g bytes/s, %g s of latency",
                       bytes, s->worker_bytes_per_s, s->server_bytes_per_s, s->latency_s);
    if (!(share >= (1 - 1e-9) / servers) || !(share <= 1 + 1e-9))
        return ty_fail(error, TY_EINVAL,
                       "parameter server: found %g of the bytes on one of %u servers", share,
                       s->servers);
    if (s->place == TY_SERVERS_DEDICATED)
        way_s =
            fmax(bytes / s->worker_bytes_per_s, workers * share * bytes / s->server_bytes_per_s);
    else /* a host sends all of its data but its own share, and receives that share from all others
          */
        way_s = fmax((workers > servers ? 1 : (servers - 1) / servers), (workers - 1) / servers) *
                bytes / s->worker_bytes_per_s;
    *seconds = s->workers == 1 && s->place == TY_SERVERS_COLOCATED ? 0 : 2 * (s->latency_s + way_s);
    return TY_OK;
}
