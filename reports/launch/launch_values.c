/* Values of templates: placement of ranks, NCCL's environment, and values of the plan. */
#include "launch.h"
#include "ty_planner.h"
#include "ty_training_config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB 1048576u
/* A job's time limit is twice the predicted time plus a quarter of an hour to start. */
#define TIME_FACTOR 2
#define STARTING_MINUTES 15
/* The name of adapters in the examples of NVIDIA's network operator (shared device plugin). */
#define USUAL_RDMA "rdma/rdma_shared_device_a"
#define LISTED_HOSTS 8                    /* in the comment of a script */
#define TRIES 10                          /* failures in a row without a new checkpoint */
#define CHECKPOINT_BYTES_PER_PARAMETER 18 /* fp32 weights and two moments, and some in bf16 */

/* ---- Placement --------------------------------------------------------------------------- */

/* Checks names for scripts and host lists, which have no quotes. */
static bool is_plain_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '-')
        return false;
    for (const char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            return false;
    return true;
}

/* @param used index of each of the cluster's hosts among those in use, or UINT32_MAX */
static ty_status place_ranks(launch *l, uint32_t *used, ty_error *error)
{
    const ty_cluster *cluster = l->input->cluster;
    const uint32_t width = ty_plan_replica_ranks(l->plan),
                   devices = ty_cluster_device_count(cluster);

    for (uint32_t p = 0; p < l->rank_count; p++) {
        launch_rank *rank = &l->ranks[p];
        const uint32_t device = ty_plan_device_of_rank(l->plan, p);
        uint32_t host, first = device;
        if (device >= devices)
            return ty_fail(error, TY_EINVAL,
                           "the plan uses device %u, and cluster \"%.80s\" has %u", device,
                           ty_cluster_name(cluster), devices);
        host = ty_cluster_device_host(cluster, device);
        while (first > 0 && ty_cluster_device_host(cluster, first - 1) == host)
            first--;
        if (used[host] == UINT32_MAX) {
            const char *name = l->input->host_names != NULL ? l->input->host_names[host]
                                                            : ty_cluster_host_name(cluster, host);
            if (!is_plain_name(name))
                return ty_fail(error, TY_EINVAL,
                               "host name \"%.80s\": expected letters, digits, dots and hyphens; "
                               "give real names with --nodes",
                               name);
            used[host] = l->host_count;
            l->hosts[l->host_count++].name = name;
        }
        *rank = (launch_rank){p / width, p % width, used[host], device - first};
        l->hosts[rank->host].rank_count++;
        l->has_accelerators |= !(ty_cluster_device_type(cluster, device)->core_share > 0);
    }
    return TY_OK;
}

static void describe_placement(launch *l)
{
    l->is_blocked = true;
    l->per_host = l->hosts[0].rank_count;
    l->first_slot = l->ranks[0].slot;
    for (uint32_t p = 1; p < l->rank_count; p++) {
        const launch_rank *one = &l->ranks[p - 1], *next = &l->ranks[p];
        if (next->host == one->host) {
            l->is_blocked &= next->slot == one->slot + 1;
        } else {
            l->is_blocked &= next->host == one->host + 1;
            l->first_slot = next->slot == l->first_slot ? l->first_slot : UINT32_MAX;
        }
    }
    for (uint32_t h = 1; h < l->host_count; h++)
        l->per_host = l->hosts[h].rank_count == l->per_host ? l->per_host : 0;
}

ty_status ty_launch_place(launch *l, ty_error *error)
{
    const uint32_t hosts = ty_cluster_host_count(l->input->cluster);
    uint32_t *used = ty_alloc(hosts, sizeof *used);
    ty_status status;

    l->rank_count = ty_plan_launched_count(l->plan);
    l->ranks = ty_alloc(l->rank_count, sizeof *l->ranks);
    l->hosts = ty_alloc(hosts, sizeof *l->hosts);
    if (used == NULL || l->ranks == NULL || l->hosts == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    } else {
        memset(used, 0xff, hosts * sizeof *used);
        status = place_ranks(l, used, error);
    }
    if (status == TY_OK)
        describe_placement(l);
    ty_free(used);
    return status;
}

/* ---- Precision --------------------------------------------------------------------------- */

const char *ty_launch_precision(const ty_plan *plan, const ty_cluster *cluster)
{
    if (ty_trains_in_fp16(plan->workload, cluster, ty_plan_device_of_replica(plan, 0)))
        return "fp16";
    if (plan->workload->element_bytes != 2)
        return plan->workload->precision == TY_PRECISION_TF32 ? "tf32" : "fp32";
    return "bf16";
}

const char *ty_launch_backend(const ty_plan *plan, const ty_cluster *cluster)
{
    const uint32_t width = ty_plan_replica_ranks(plan), count = ty_plan_rank_count(plan);
    uint32_t processors = 0, gpus = 0;

    for (uint32_t p = 0; p < count; p++) {
        const ty_device_type *type = ty_cluster_device_type(
            cluster, ty_plan_device_of_replica_rank(plan, p / width, p % width));
        processors += type->core_share > 0;
        gpus += ty_is_nccl_device(type->name);
    }
    return processors == count ? "cpu" : gpus == count ? "cuda" : NULL;
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static bool are_alike(const ty_workload *w, uint32_t first, uint32_t second, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if (w->layers[first + i].kind != w->layers[second + i].kind)
            return false;
    return true;
}

/* Repeated blocks of the model, as users' scripts list them; 0: none. */
static uint32_t repeated_blocks(const ty_workload *w)
{
    const uint32_t *starts;
    uint32_t head;
    const uint32_t found = ty_workload_blocks(w, &starts, &head);
    const uint32_t count = found - (head != TY_NO_LAYER);

    /* The first also has the layers before the blocks. */
    for (uint32_t b = 1; b < count; b++) {
        const uint32_t length = (b + 1 < found ? starts[b + 1] : w->layer_count) - starts[b];
        if (starts[b] >= length && are_alike(w, starts[b] - length, starts[b], length))
            return count;
    }
    return 0;
}

/* ---- Buckets ----------------------------------------------------------------------------- */

static bool is_of_range(const ty_bucket *bucket)
{
    return bucket->tied_stage == TY_NO_STAGE && !bucket->of_experts;
}

/* Counts buckets that close at `full` bytes, and whether each begins as in the plan. */
static uint32_t fill_buckets(const ty_plan *plan, uint64_t full, bool *is_as_planned)
{
    uint32_t count = 0;

    *is_as_planned = true;
    for (uint32_t s = 0, b = 0; s < plan->stage_count; s++) {
        const uint32_t first = plan->stages[s].first_layer;
        uint64_t held = 0;
        for (uint32_t l = first + plan->stages[s].layer_count; l-- > first;) {
            const ty_bucket one = {
                .stage = s, .first_layer = l, .layer_count = 1, .tied_stage = TY_NO_STAGE};
            const uint64_t bytes = ty_bucket_gradient_bytes(plan, &one);
            bool begins = false;
            if (bytes == 0)
                continue;
            /* The plan's bucket that begins with this layer, seen from the end. */
            while (b < plan->bucket_count &&
                   (!is_of_range(&plan->buckets[b]) || plan->buckets[b].stage < s ||
                    (plan->buckets[b].stage == s && plan->buckets[b].first_layer > l)))
                b++;
            if (b < plan->bucket_count && plan->buckets[b].stage == s) {
                const ty_bucket *own = &plan->buckets[b];
                begins = true;
                for (uint32_t after = l + 1; begins && after < own->first_layer + own->layer_count;
                     after++) {
                    const ty_bucket next = {.stage = s,
                                            .first_layer = after,
                                            .layer_count = 1,
                                            .tied_stage = TY_NO_STAGE};
                    begins = ty_bucket_gradient_bytes(plan, &next) == 0;
                }
            }
            *is_as_planned &= begins == (held == 0);
            count += held == 0;
            held += bytes;
            if (held >= full)
                held = 0;
        }
    }
    return count;
}

/* The bucket size of frameworks that comes nearest to the plan's buckets. Frameworks fill from the
 * last parameter of a stage down and close a bucket when it reaches this size
 * (DistributedDataParallel's compute_bucket_assignment_by_size, Megatron-LM's
 * param_and_grad_buffer, DeepSpeed's independent gradient buckets). */
typedef struct bucket_limit {
    uint64_t bytes;     /* uncompressed, fp32 */
    uint32_t planned;   /* buckets of the plan, without tied weights and experts */
    uint32_t count;     /* buckets that frameworks make, filled by entire layers */
    bool is_as_planned; /* they equal the plan's, layer by layer */
} bucket_limit;

static bucket_limit limit_of(const ty_plan *plan)
{
    bucket_limit limit = {.bytes = UINT64_MAX};
    uint64_t largest = 1, low = 1, high;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *next = b + 1 < plan->bucket_count ? &plan->buckets[b + 1] : NULL;
        if (plan->buckets[b].gradient_bytes > largest)
            largest = plan->buckets[b].gradient_bytes;
        limit.planned += is_of_range(&plan->buckets[b]);
        /* The end of a stage closes its last bucket, whatever its size. */
        if (is_of_range(&plan->buckets[b]) && next != NULL && is_of_range(next) &&
            next->stage == plan->buckets[b].stage && plan->buckets[b].gradient_bytes < limit.bytes)
            limit.bytes = plan->buckets[b].gradient_bytes;
    }
    if (limit.bytes == UINT64_MAX)
        limit.bytes = largest;
    limit.count = fill_buckets(plan, limit.bytes, &limit.is_as_planned);
    if (limit.is_as_planned)
        return limit;
    /* Largest size with the same number of buckets: larger buckets are fewer. */
    for (high = largest; low < high;) {
        const uint64_t middle = high - (high - low) / 2;
        if (fill_buckets(plan, middle, &limit.is_as_planned) >= limit.planned)
            low = middle;
        else
            high = middle - 1;
    }
    limit.bytes = low;
    limit.count = fill_buckets(plan, low, &limit.is_as_planned);
    return limit;
}

/* ---- Environment ------------------------------------------------------------------------- */

/* "Ring" or "Tree" if all collectives use one algorithm; NULL if they differ, if there are none,
 * and for algorithms without a name in NCCL. */
static const char *only_algorithm(const ty_plan *plan)
{
    static const char *const names[TY_ALGORITHM_COUNT] = {[TY_RING] = "Ring", [TY_TREE] = "Tree"};
    const char *only = NULL;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const char *name = names[plan->buckets[b].algorithm];
        if (ty_bucket_device_count(plan, &plan->buckets[b]) < 2)
            continue;
        if (name == NULL || (only != NULL && only != name))
            return NULL;
        only = name;
    }
    return only;
}

/* Whether every link at a network switch is Ethernet without RDMA, by the kinds of the
 * catalogue. */
static bool is_plain_ethernet(const ty_cluster *cluster)
{
    bool is_any = false;

    for (uint32_t i = 0; i < ty_cluster_link_count(cluster); i++) {
        const ty_link_edge *link = ty_cluster_link(cluster, i);
        if (ty_cluster_vertex_kind(cluster, link->from) != TY_VERTEX_SWITCH &&
            ty_cluster_vertex_kind(cluster, link->to) != TY_VERTEX_SWITCH)
            continue;
        is_any = true;
        if (strncmp(link->kind, "eth", 3) != 0)
            return false;
    }
    return is_any;
}

static void put_variable(launch *l, const char *name, const char *value, const char *why)
{
    launch_values *row = ty_launch_put_row(&l->values, "environment");

    ty_launch_put_text(row, "variable", name);
    ty_launch_put_text(row, "value", value);
    ty_launch_put_text(row, "why", why);
    /* NCCL_ALGO would override the tuner's table. */
    ty_launch_put_flag(row, "tuned",
                       strncmp(name, "NCCL_", 5) == 0 && strcmp(name, "NCCL_ALGO") != 0);
}

/* Names of variables: NCCL's user guide, "Environment variables". */
static void put_environment(launch *l)
{
    const char *algorithm = only_algorithm(l->plan);

    put_variable(l, "OMP_NUM_THREADS", "1", "processes share their host's cores");
    if (!l->has_accelerators)
        return;
    put_variable(l, "NCCL_DEBUG", "WARN", "NCCL says what it cannot do");
    if (algorithm != NULL)
        put_variable(l, "NCCL_ALGO", algorithm,
                     "the collective the plan counts on; unset to let NCCL choose");
    if (l->host_count > 1 && is_plain_ethernet(l->input->cluster))
        put_variable(l, "NCCL_IB_DISABLE", "1", "the hosts are joined by Ethernet without RDMA");
}

/* ---- Hosts and processes ----------------------------------------------------------------- */

static void put_numbers(launch_values *v, const char *key, uint32_t first, uint32_t count)
{
    ty_text text = {0};

    for (uint32_t n = 0; n < count; n++)
        ty_text_addf(&text, "%s%u", n > 0 ? "," : "", first + n);
    ty_launch_put_taken(v, key, &text);
}

static void put_hosts(launch *l)
{
    launch_values *v = &l->values;
    const launch_host *last = &l->hosts[l->host_count - 1];
    const uint32_t first_slot = l->first_slot != UINT32_MAX ? l->first_slot : 0;
    ty_text names = {0};

    for (uint32_t h = 0; h < l->host_count; h++) {
        launch_values *row = ty_launch_put_row(v, "hosts");
        ty_launch_put_text(row, "name", l->hosts[h].name);
        ty_launch_put_uint(row, "count", l->hosts[h].rank_count);
        ty_launch_put_flag(row, "after", h > 0);
        ty_launch_put_flag(row, "shown", h < LISTED_HOSTS);
        ty_text_addf(&names, "%s%s", h > 0 ? "," : "", l->hosts[h].name);
    }
    if (l->input->host_names != NULL && strcmp(l->hosts[0].name, "localhost") != 0)
        ty_launch_put_text(v, "node_list", names.data);
    ty_text_clear(&names);
    ty_launch_put_uint(v, "host_count", l->host_count);
    ty_launch_put_uint(v, "worker_hosts", l->host_count - 1);
    ty_launch_put_flag(v, "many_hosts", l->host_count > 1);
    ty_launch_put_flag(v, "more_hosts", l->host_count > LISTED_HOSTS);
    ty_launch_put_text(v, "first_host", l->hosts[0].name);
    ty_launch_put_uint(v, "first_host_processes", l->hosts[0].rank_count);
    ty_launch_put_text(v, "last_host", last->name);
    ty_launch_put_uint(v, "last_host_processes", last->rank_count);
    ty_launch_put_uint(v, "per_host", l->per_host);
    ty_launch_put_uint(v, "slots", first_slot + l->per_host);
    ty_launch_put_flag(v, "in_order", l->is_blocked);
    ty_launch_put_flag(v, "host_file", !l->is_blocked || l->per_host == 0);
    ty_launch_put_flag(v, "other_slots", l->first_slot == UINT32_MAX);
    put_numbers(v, "devices", first_slot, l->per_host);
    put_numbers(v, "pod_devices", 0, l->per_host); /* a pod numbers its devices from 0 */
    ty_launch_put_uint(v, "tasks", l->input->on != NULL ? l->host_count : l->rank_count);
    ty_launch_put_uint(v, "tasks_per_node", l->input->on != NULL ? 1 : l->per_host);
}

static void put_ranks(launch *l)
{
    ty_launch_put_uint(&l->values, "process_count", l->rank_count);
    for (uint32_t p = 0; p < l->rank_count; p++) {
        const launch_rank *rank = &l->ranks[p];
        const uint32_t stage = ty_plan_stage_of_replica(l->plan, rank->stage_replica);
        launch_values *row = ty_launch_put_row(&l->values, "processes");
        ty_launch_put_uint(row, "rank", p);
        ty_launch_put_text(row, "host", l->hosts[rank->host].name);
        ty_launch_put_uint(row, "device", rank->slot);
        ty_launch_put_uint(row, "stage", stage);
        ty_launch_put_uint(row, "stage_replica", rank->stage_replica);
        ty_launch_put_uint(row, "replica_rank", rank->replica_rank);
    }
}

/* ---- Checkpoints ------------------------------------------------------------------------- */

/* Frameworks count steps between checkpoints: a time is divided by the predicted step time. */
static void put_checkpoints(launch *l)
{
    const ty_launch_input *in = l->input;
    const ty_workload *w = l->plan->workload;
    const uint32_t keep = in->keep > 0 ? in->keep : TY_CHECKPOINTS_KEPT;
    const double elements =
        (double)ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
    uint64_t steps = in->checkpoint_every;
    launch_values *v = &l->values;

    if (in->checkpoint == NULL)
        return;
    if (in->checkpoint_every_s > 0 && l->plan->has_prediction)
        steps = (uint64_t)fmax(in->checkpoint_every_s / ty_plan_summary(l->plan)->step_time_s, 1);
    ty_launch_put_text(v, "checkpoint", in->checkpoint);
    ty_launch_put_flag(v, "whole_path", in->checkpoint[0] == '/');
    ty_launch_put_uint(v, "checkpoint_steps", steps);
    ty_launch_put_uint(v, "keep", keep);
    ty_launch_put_uint(v, "keep_two", keep > 2 ? keep : 2); /* torchtitan's least */
    ty_launch_put_uint(v, "tries", TRIES);
    ty_launch_put(v, "checkpoint_storage", "%.0fGi",
                  1 + ceil(elements * CHECKPOINT_BYTES_PER_PARAMETER * (keep + 1) / 1073741824));
}

/* ---- Containers -------------------------------------------------------------------------- */

static ty_status put_containers(launch *l, ty_error *error)
{
    const ty_launch_input *in = l->input;
    const ty_device_type *device =
        ty_cluster_device_type(in->cluster, ty_plan_device_of_replica(l->plan, 0));
    launch_values *v = &l->values;
    ty_status status;
    char *accelerator = NULL;

    ty_launch_put_flag(v, "own_image", in->image != NULL);
    if (in->image == NULL && in->version != NULL)
        ty_launch_put(v, "image", "trainyard:%.40s", in->version);
    ty_launch_put_text(v, "image", in->image);
    if (in->image != NULL)
        ty_launch_put(v, "docker_image", "docker:%.140s", in->image);
    if (l->has_accelerators && l->host_count > 1 && !is_plain_ethernet(in->cluster) &&
        (in->rdma == NULL || strcmp(in->rdma, "none") != 0))
        ty_launch_put_text(v, "rdma", in->rdma != NULL ? in->rdma : USUAL_RDMA);
    ty_launch_put_name(v, "device", device->name, 60);
    ty_launch_put_flag(v, "unknown_devices",
                       l->has_accelerators && ty_launch_backend(l->plan, in->cluster) == NULL);
    ty_launch_put_text(v, "job", in->job);
    ty_launch_put_flag(v, "job_beside",
                       in->job != NULL && strlen(in->job) > LAUNCH_LARGEST_CONFIG_BYTES);
    if (in->on == NULL || !l->has_accelerators)
        return TY_OK;
    status = ty_device_alias(device->name, "sky", &accelerator, error);
    ty_launch_put_flag(v, "no_sky_accelerator", accelerator == NULL);
    if (accelerator != NULL)
        ty_launch_put(v, "sky_accelerators", "%.100s:%u", accelerator, l->per_host);
    ty_free(accelerator);
    return status;
}

/* ---- The plan ---------------------------------------------------------------------------- */

static const char *torch_type(const char *precision)
{
    return strcmp(precision, "bf16") == 0   ? "bfloat16"
           : strcmp(precision, "fp16") == 0 ? "float16"
                                            : "float32";
}

/* Precision of gradients on the wire, and the compression that targets refuse. */
static void put_gradients(launch_values *v, const ty_plan *plan)
{
    const bucket_limit limit = limit_of(plan);
    const char *gradients = "fp32", *narrow = NULL;
    bool is_halved = false, is_compressed = false;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_compression_kind kind = plan->buckets[b].compression.kind;
        const ty_compression_row *row = ty_compression_at(kind);
        const bool is_half = row->summed != TY_PRECISION_FP32,
                   is_whole = kind == TY_COMPRESSION_NONE || row->sends_rows;
        if (is_half && !is_halved)
            gradients = ty_precision_name(row->summed);
        is_halved |= is_half;
        is_compressed |= !is_whole;
        if (!is_half && !is_whole && narrow == NULL)
            narrow = ty_compression_name(kind);
    }
    ty_launch_put_text(v, "gradient_precision", gradients);
    ty_launch_put_text(v, "torch_gradients", torch_type(gradients));
    ty_launch_put_text(v, "narrow_gradients", narrow);
    ty_launch_put_flag(v, "compressed", is_compressed);
    ty_launch_put_uint(v, "bucket_bytes", limit.bytes);
    ty_launch_put_uint(v, "bucket_mib", (limit.bytes + MIB - 1) / MIB);
    ty_launch_put_uint(v, "bucket_elements", limit.bytes / TY_GRADIENT_ELEMENT_BYTES);
    ty_launch_put_uint(v, "bucket_count", limit.count);
    ty_launch_put_uint(v, "planned_buckets", limit.planned);
    ty_launch_put_flag(v, "buckets_as_planned", limit.is_as_planned);
}

static void put_optimizer(launch_values *v, const ty_optimizer *o)
{
    const ty_optimizer_row *row = ty_optimizer_row_of(o->kind);

    ty_launch_put_text(v, "optimizer", row->name);
    ty_launch_put_text(v, "torch_optimizer", row->pytorch);
    ty_launch_put_text(v, "megatron_optimizer", row->megatron);
    ty_launch_put_text(v, "titan_optimizer", row->torchtitan);
    ty_launch_put_flag(v, "has_momentum", row->has_momentum);
    ty_launch_put_flag(v, "has_betas", row->has_betas);
    ty_launch_put_number(v, "learning_rate", o->learning_rate);
    ty_launch_put_number(v, "weight_decay", o->weight_decay);
    ty_launch_put_number(v, "momentum", o->momentum);
    ty_launch_put_number(v, "beta1", o->beta1);
    ty_launch_put_number(v, "beta2", o->beta2);
    ty_launch_put_number(v, "epsilon", o->epsilon);
}

/* Writes stages with the blocks that begin in each, and the first stage that ends inside a
 * block. */
static void put_stages(launch_values *v, const ty_plan *plan)
{
    const ty_workload *w = plan->workload;
    const uint32_t *starts;
    uint32_t head, block = 0, split = TY_NO_STAGE;
    const uint32_t count = ty_workload_blocks(w, &starts, &head);

    for (uint32_t s = 0; s < plan->stage_count; s++) {
        launch_values *row = ty_launch_put_row(v, "stages");
        const bool is_last = s + 1 == plan->stage_count;
        const uint32_t end = plan->stages[s].first_layer + plan->stages[s].layer_count,
                       first = block;
        ty_launch_put_flag(row, "after", s > 0);
        ty_launch_put_flag(row, "last", is_last);
        for (; block < count && starts[block] < end && starts[block] != head; block++) {
            launch_values *inside = ty_launch_put_row(row, "blocks");
            ty_launch_put_uint(inside, "block", block);
            ty_launch_put_flag(inside, "comma", s == 0 || block > first);
        }
        if (split == TY_NO_STAGE && !is_last && (block == count || starts[block] != end)) {
            split = s;
            ty_launch_put_flag(v, "split_stage", true);
            ty_launch_put_uint(v, "split_stage_number", s);
            ty_launch_put_name(v, "split_layer", w->layers[end - 1].name, 60);
        }
    }
}

/* Writes the first stage whose replicas or recomputation differ from those of stage 0. */
static void put_unlike_stage(launch_values *v, const ty_plan *plan)
{
    const ty_plan_stage *first = &plan->stages[0];
    uint32_t s = 1;

    while (s < plan->stage_count && plan->stages[s].replicas == first->replicas &&
           plan->stages[s].recompute == first->recompute &&
           plan->stages[s].recompute_blocks == first->recompute_blocks)
        s++;
    if (s >= plan->stage_count)
        return;
    ty_launch_put_text(v, "unlike_stages",
                       plan->stages[s].replicas != first->replicas ? "replicas" : "recompute");
    ty_launch_put_uint(v, "first_replicas", first->replicas);
    ty_launch_put_uint(v, "unlike_stage", s);
    ty_launch_put_uint(v, "unlike_replicas", plan->stages[s].replicas);
}

static void put_layout(launch_values *v, const ty_plan *plan)
{
    const uint32_t passes = plan->micro_batches / plan->stages[0].replicas,
                   experts = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
                   tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL),
                   pipeline_ranks = ty_plan_pipeline_size(plan),
                   virtual_stages = ty_plan_virtual_stages(plan);
    int divided = 0;

    ty_launch_put_uint(v, "stage_count", plan->stage_count);
    ty_launch_put_flag(v, "pipelined", plan->stage_count > 1);
    ty_launch_put_text(v, "schedule", ty_schedule_name(plan->schedule));
    ty_launch_put_text(v, "megatron_schedule", ty_schedule_at(plan->schedule)->megatron);
    ty_launch_put_text(v, "titan_schedule", ty_schedule_at(plan->schedule)->torchtitan);
    ty_launch_put_flag(v, "asynchronous", ty_schedule_at(plan->schedule)->is_asynchronous);
    ty_launch_put_uint(v, "vpp", virtual_stages > 1 ? virtual_stages : 0);
    ty_launch_put_flag(v, "uneven_groups", passes % pipeline_ranks != 0);
    ty_launch_put_uint(v, "tp", tensor);
    ty_launch_put_uint(v, "cp", ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL));
    ty_launch_put_uint(v, "ep", experts);
    ty_launch_put_uint(v, "pp", pipeline_ranks);
    ty_launch_put_flag(v, "sp", plan->sequence_parallel);
    while (divided < TY_PARALLELISM_COUNT &&
           ty_plan_parallel_size(plan, (ty_parallelism)divided) < 2)
        divided++;
    if (divided < TY_PARALLELISM_COUNT) {
        ty_launch_put_text(v, "divided", ty_parallelism_name((ty_parallelism)divided));
        ty_launch_put_uint(v, "divided_by", ty_plan_parallel_size(plan, (ty_parallelism)divided));
    }
    /* Megatron-LM needs one connection for these, to keep the order of transfers before
     * Blackwell. */
    ty_launch_put_flag(v, "divided_layers",
                       tensor > 1 || ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL) > 1);
    ty_launch_put_flag(v, "divided_model",
                       plan->stage_count > 1 || ty_plan_replica_ranks(plan) > 1);
    ty_launch_put_uint(v, "global_batch", plan->global_batch);
    ty_launch_put_uint(v, "micro_batch", plan->micro_batch_size);
    ty_launch_put_uint(v, "micro_batches", plan->micro_batches);
    ty_launch_put_uint(v, "passes", passes);
    /* Frameworks count the batch of one rank; torchtitan counts a pipeline's entire local batch. */
    ty_launch_put_uint(v, "rank_micro_batch", plan->micro_batch_size / experts);
    ty_launch_put_uint(v, "replica_batch", (uint64_t)(plan->micro_batch_size / experts) * passes);
    ty_launch_put_uint(v, "expert_replicas", (uint64_t)plan->stages[0].replicas * experts);
    ty_launch_put_uint(v, "zero", plan->zero);
    ty_launch_put_flag(v, "sharded", plan->zero >= 2);
}

ty_status ty_launch_put_plan(launch *l, ty_error *error)
{
    const ty_plan *plan = l->plan;
    const ty_workload *w = plan->workload;
    char family[TY_FLAVOR_SIZE], flavor[TY_FLAVOR_SIZE];
    launch_values *v = &l->values;

    put_hosts(l);
    put_ranks(l);
    put_environment(l);
    put_checkpoints(l);
    ty_launch_put_flag(v, "accelerators", l->has_accelerators);
    ty_launch_put_name(v, "workload", w->name, 80);
    ty_launch_put_text(v, "script", l->input->script != NULL ? l->input->script : "train.py");
    ty_launch_put_uint(v, "steps", l->input->steps);
    if (plan->has_prediction && l->input->steps > 0)
        ty_launch_put(v, "time_minutes", "%.0f",
                      ceil(l->input->steps * plan->prediction.step_time_s * TIME_FACTOR / 60) +
                          STARTING_MINUTES);
    ty_launch_put_uint(v, "seed", plan->seed);
    ty_launch_put_uint(v, "sequence", w->tokens_per_sample);
    ty_launch_put_text(v, "precision", l->precision);
    ty_launch_put_text(v, "torch_precision", torch_type(l->precision));
    ty_launch_put_flag(v, "tf32",
                       strcmp(ty_launch_precision(plan, l->input->cluster), "tf32") == 0);
    ty_launch_put_text(v, "products",
                       ty_precision_is_narrow(w->precision) ? ty_precision_name(w->precision)
                                                            : l->precision);
    ty_launch_put_text(v, "learning", ty_learning_name(w->learning));
    ty_launch_put_uint(v, "local_steps", w->local_steps > 1 ? w->local_steps : 0);
    ty_launch_put_uint(v, "staleness", plan->staleness);
    ty_launch_put_flag(v, "prioritized", plan->exchange_order != NULL);
    ty_launch_put_text(v, "recompute", ty_recompute_name(plan->stages[0].recompute));
    ty_launch_put_uint(v, "recompute_blocks", plan->stages[0].recompute_blocks);
    ty_launch_put_flag(v, "recomputes_blocks",
                       ty_recompute_has_segments(plan->stages[0].recompute));
    ty_launch_put_uint(v, "repeated_blocks", repeated_blocks(w));
    TY_TRY(ty_training_flavor(w->name, family, flavor, error));
    if (flavor[0] != '\0') {
        ty_launch_put_text(v, "titan_family", family);
        ty_launch_put_text(v, "titan_flavor", flavor);
    }
    put_gradients(v, plan);
    put_optimizer(v, &plan->optimizer);
    put_layout(v, plan);
    put_stages(v, plan);
    put_unlike_stage(v, plan);
    return put_containers(l, error);
}
