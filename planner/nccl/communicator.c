/* From devices of a cluster to the inputs of NCCL's model. The first host represents all;
 * ty_cluster_rails computes the real network rates of the members. */
#include "nccl_constants.h"

#include <math.h>
#include <string.h>

#define US 1e-6
#define GB 1e9

static const nccl_constants *const k = &ty_nccl_constants;

/* Value of the first entry that `name` starts with; -1: none. */
static int look_up(const nccl_name *names, const char *name)
{
    for (uint32_t i = 0; i < NCCL_NAMES && names[i].prefix != NULL; i++)
        if (strncmp(name, names[i].prefix, strlen(names[i].prefix)) == 0)
            return names[i].value;
    return -1;
}

bool ty_is_nccl_device(const char *name)
{
    return look_up(k->devices, name) >= 0;
}

static ty_status find_generation(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                                 ty_communicator *c, ty_error *error)
{
    enum { AMPERE_FROM = 80, HOPPER_FROM = 90, BLACKWELL_FROM = 100 };
    const ty_device_type *previous = NULL;
    int least = INT32_MAX;

    for (uint32_t i = 0; i < count; i++) {
        const ty_device_type *type = ty_cluster_device_type(cluster, devices[i]);
        int capability;
        if (type == previous)
            continue;
        capability = look_up(k->devices, type->name);
        if (capability < 0)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "device %u is a %s: found no compute capability of it, expected a GPU "
                           "that NCCL runs on",
                           devices[i], type->name);
        least = capability < least ? capability : least;
        previous = type;
    }
    c->generation = least >= BLACKWELL_FROM ? TY_BLACKWELL
                    : least >= HOPPER_FROM  ? TY_HOPPER
                    : least >= AMPERE_FROM  ? TY_AMPERE
                                            : TY_VOLTA;
    return TY_OK;
}

/* NICs that the devices of a host use, each at the rate of its nearest device: a channel enters and
 * leaves a host there. */
typedef struct nic_list {
    uint32_t count, links[64];
    double rates[64];
} nic_list;

/* The nominal rate of a NIC, which NCCL uses: the line rate in Gbit/s at the end of a link's name
 * ("eth25", "efa400"), if the link's bandwidth is most of it; else the link's bandwidth.
 */
static double line_rate(const ty_device_ports *ports)
{
    const double most = 0.8, bits = 8;
    const char *end = ports->network_kind + strlen(ports->network_kind), *digits = end;
    uint64_t gigabits = 0;
    double rate = ports->network_bytes_per_s;

    while (digits > ports->network_kind && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    if (digits == end || ty_parse_uint(digits, 1, 10000, &gigabits, NULL) != TY_OK)
        return rate;
    return rate < (double)gigabits * GB / bits && rate > most * (double)gigabits * GB / bits
               ? (double)gigabits * GB / bits
               : rate;
}

static void add_nic(nic_list *nics, const ty_device_ports *ports)
{
    uint32_t i = 0;

    while (i < nics->count && nics->links[i] != ports->network_link)
        i++;
    if (i == sizeof nics->links / sizeof nics->links[0])
        return;
    if (i == nics->count) {
        nics->links[nics->count] = ports->network_link;
        nics->rates[nics->count++] = 0;
    }
    nics->rates[i] = fmax(nics->rates[i], fmin(ports->up_bytes_per_s, line_rate(ports)));
}

double ty_socket_rate(ty_link_transport transport, double flows)
{
    const double f = flows > 0 ? flows : k->socket_flows;
    const double moved = GB / (1 / (k->socket_thread_gb_per_s * f) + 1 / k->socket_host_gb_per_s);

    if (!ty_link_transport_is_sockets(transport))
        return HUGE_VAL;
    return transport == TY_LINK_ENA ? fmin(moved, f * k->ena_flow_gb_per_s * GB) : moved;
}

/* The constants of the first NIC's transport. */
static void find_transport(const ty_cluster *cluster, const ty_device_ports *ports,
                           ty_communicator *c)
{
    const ty_link_edge *link = ty_cluster_link(cluster, ports->network_link);
    const char *name = ty_link_transport_name(link->transport);
    const nccl_network *n = k->networks;

    c->transport = link->transport;
    c->flows = link->flows;
    while (n->transport != NULL &&
           (strcmp(n->transport, name) != 0 || (int)c->generation < n->generation))
        n++;
    c->network_share = 1;
    c->socket_bytes_per_s = ty_socket_rate(link->transport, link->flows);
    if (n->transport == NULL)
        return;
    c->network_latency_s = US * n->reported_us;
    c->message_latency_s = US * n->message_us;
    c->long_latency_s = US * n->long_us;
    c->is_simple_only = n->is_simple_only;
    c->network_share = c->nodes > 2 ? n->more_share : n->two_share;
}

static ty_status find_network(const ty_cluster *cluster, const uint32_t *devices,
                              const ty_rails *rails, ty_communicator *c, ty_device_ports *first,
                              ty_error *error)
{
    uint32_t outside = rails->hosts > 1 ? devices[rails->order[rails->per_host]] : TY_NO_DEVICE;
    nic_list nics = {0};

    for (uint32_t i = 0; i < rails->per_host; i++) {
        ty_device_ports ports;
        TY_TRY(ty_cluster_device_ports(cluster, devices[rails->order[i]], outside, &ports, error));
        if (i == 0)
            *first = ports;
        if (outside != TY_NO_DEVICE)
            add_nic(&nics, &ports);
    }
    c->nics = nics.count;
    for (uint32_t i = 0; i < nics.count; i++)
        c->nic_bytes_per_s = i == 0 ? nics.rates[0] : fmin(c->nic_bytes_per_s, nics.rates[i]);
    if (nics.count > 0)
        find_transport(cluster, first, c);
    return TY_OK;
}

/* Inside a host: an NVSwitch gives every GPU all of its links, a mesh as many rings as it has. */
static ty_status find_inside(const ty_cluster *cluster, const uint32_t *devices,
                             const ty_rails *rails, const ty_device_ports *first,
                             ty_communicator *c, ty_error *error)
{
    ty_path path = {0};

    if (rails->per_host < 2)
        return TY_OK;
    TY_TRY(
        ty_cluster_path(cluster, devices[rails->order[0]], devices[rails->order[1]], &path, error));
    c->has_nvlink = first->links_bytes_per_s > 0 &&
                    path.bandwidth_bytes_per_s <= first->links_bytes_per_s * (1 + 1e-9) &&
                    path.link_count <= 2;
    c->has_nvswitch = c->has_nvlink && path.link_count == 2;
    c->gpu_bytes_per_s = rails->around_bytes_per_s;
    c->path_bytes_per_s = fmin(path.bandwidth_bytes_per_s, rails->around_bytes_per_s);
    c->is_staged =
        !c->has_nvlink && ty_cluster_host_is_staged(
                              cluster, ty_cluster_device_host(cluster, devices[rails->order[0]]));
    if (c->is_staged) {
        c->gpu_bytes_per_s *= k->staged_share;
        c->path_bytes_per_s *= k->staged_share;
    }
    ty_path_clear(&path);
    return TY_OK;
}

ty_status ty_communicator_on_rails(const ty_cluster *cluster, const uint32_t *devices,
                                   uint32_t count, const ty_rails *rails, ty_communicator *out,
                                   ty_error *error)
{
    ty_communicator c = {.ranks = count};
    ty_device_ports first = {0};
    int processor = -1;

    TY_TRY(find_generation(cluster, devices, count, &c, error));
    c.nodes = rails->hosts;
    TY_TRY(find_network(cluster, devices, rails, &c, &first, error));
    TY_TRY(find_inside(cluster, devices, rails, &first, &c, error));
    if (first.bridge_kind != NULL)
        processor = look_up(k->interconnects, first.bridge_kind);
    c.processor = processor < 0 ? TY_PROCESSOR_OTHER : (ty_host_processor)processor;
    c.has_nvls = c.has_nvswitch && c.generation >= TY_HOPPER;
    c.has_ll128 = c.has_nvlink || (rails->per_host == 1 && first.links_bytes_per_s > 0);
    *out = c;
    return TY_OK;
}

ty_status ty_communicator_of(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                             ty_communicator *out, ty_error *error)
{
    ty_rails rails = {0};
    ty_status status = ty_cluster_rails(cluster, devices, count, &rails, error);

    if (status == TY_OK)
        status = ty_communicator_on_rails(cluster, devices, count, &rails, out, error);
    ty_rails_clear(&rails);
    return status;
}
