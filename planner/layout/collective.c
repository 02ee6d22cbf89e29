/* How groups of ranks lie in the hosts, and what a collective or a transfer among them takes. */
#include "parts.h"

#include <math.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Hosts of one device have no links inside. */
static double inside_bandwidth(const ty_layout_cluster *cluster, double efficiency)
{
    double bandwidth = cluster->host_bandwidth_bytes_per_s;
    return bandwidth > 0 ? bandwidth * efficiency : HUGE_VAL;
}

ty_layout_group layout_group(const ty_layout_cluster *cluster, uint32_t stride, uint32_t members)
{
    uint32_t host = least(cluster->devices_per_host, cluster->devices);
    uint32_t inside = stride < host ? least(members, host / stride) : 1;
    return (ty_layout_group){members, inside, host / inside};
}

double ty_layout_latency_bandwidth(const void *question, ty_collective_kind kind,
                                   bool is_all_to_all, const ty_layout_group *group, double bytes)
{
    const ty_layout_question *q = question;
    const ty_layout_cluster *cluster = &q->cluster;
    const ty_layout_constants *k = &q->constants;
    double n = group->members, h = group->members_per_host, hosts = ceil(n / h);
    double inside = inside_bandwidth(cluster, k->host_bandwidth_efficiency);
    double outside = cluster->nic_bandwidth_bytes_per_s * k->nic_bandwidth_efficiency /
                     (cluster->oversubscription * group->groups_per_host *
                      (1 + k->nic_contention * (group->groups_per_host - 1)));
    double hop = fmax(k->collective_hop_s, cluster->host_latency_s);
    double nic_hop = fmax(k->collective_nic_hop_s, cluster->nic_latency_s);
    double hops = (h - 1) * hop + (hosts > 1 ? ceil(log2(hosts)) * nic_hop : 0);
    double bandwidth = hosts > 1 ? fmin(inside, outside) : inside;

    if (group->members <= 1)
        return 0;
    if (hosts > 1 && group->groups_per_host > 1 && k->nic_group_bytes_per_s > 0)
        bandwidth = fmin(bandwidth, k->nic_group_bytes_per_s);
    if (is_all_to_all) /* what stays in the host, and what all members of a host send out of it */
        return k->collective_s + hops +
               fmax(bytes * (h - 1) / n / inside,
                    hosts > 1 ? bytes * (n - h) / n * h / outside : 0);
    if (kind == TY_ALL_REDUCE)
        return k->collective_s + 2 * hops + 2 * (n - 1) / n * bytes / bandwidth;
    return k->collective_s + hops + (n - 1) / n * bytes / bandwidth;
}

static double ask(const ty_layout_question *q, ty_collective_kind kind, bool is_all_to_all,
                  const ty_layout_group *group, double bytes)
{
    if (group->members <= 1)
        return 0;
    if (q->collective != NULL)
        return q->collective(q->collective_context, kind, is_all_to_all, group, bytes);
    return ty_layout_latency_bandwidth(q, kind, is_all_to_all, group, bytes);
}

double layout_collect(const ty_layout_question *q, ty_collective_kind kind,
                      const ty_layout_group *group, double bytes)
{
    return ask(q, kind, false, group, bytes);
}

double layout_all_to_all(const ty_layout_question *q, const ty_layout_group *group, double bytes)
{
    return ask(q, TY_ALL_GATHER, true, group, bytes);
}

/* Each tensor parallel rank sends its part, which the receivers gather among themselves (Narayanan
 * et al. 2021, section 4.1) unless they work on parts. All devices of a stage in a host send at the
 * same time; where stages lie in one host, they use its inner links. */
double layout_send(const ty_layout_question *q, const ty_layout *l, double bytes)
{
    const ty_layout_cluster *cluster = &q->cluster;
    uint32_t host = least(cluster->devices_per_host, cluster->devices);
    uint32_t stride = l->tensor * l->context * l->data;
    double efficiency = q->constants.send_bandwidth_efficiency, bandwidth, gather = 0;
    double latency = cluster->host_latency_s;

    if (l->pipeline == 1)
        return 0;
    bandwidth = inside_bandwidth(cluster, efficiency);
    if ((uint64_t)stride * l->pipeline > host) {
        latency = cluster->nic_latency_s;
        bandwidth = fmin(bandwidth, cluster->nic_bandwidth_bytes_per_s * efficiency /
                                        (cluster->oversubscription * least(stride, host)));
    }
    if (!l->sequence_parallel && l->tensor > 1) {
        ty_layout_group group = layout_group(cluster, 1, l->tensor);
        gather = layout_collect(q, TY_ALL_GATHER, &group, bytes);
    }
    return fmax(q->constants.send_s, latency) + bytes / l->tensor / bandwidth + gather;
}
