/* Checks, environment and files that several targets have. */
#include "launch.h"
#include "ty_planner.h"
#include "ty_quote.h"

#include <stdio.h>
#include <string.h>

/* ---- Blocks ------------------------------------------------------------------------------ */

static bool are_alike(const ty_workload *w, uint32_t first, uint32_t second, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if (w->layers[first + i].kind != w->layers[second + i].kind)
            return false;
    return true;
}

uint32_t ty_launch_blocks(const launch *l)
{
    const ty_workload *w = l->plan->workload;
    const uint32_t *starts;
    uint32_t head;
    const uint32_t found = ty_workload_blocks(w, &starts, &head);
    const uint32_t count = found - (head != TY_NO_LAYER);

    /* The first has what comes before the blocks as well. */
    for (uint32_t b = 1; b < count; b++) {
        const uint32_t length = (b + 1 < found ? starts[b + 1] : w->layer_count) - starts[b];
        if (starts[b] >= length && are_alike(w, starts[b] - length, starts[b], length))
            return count;
    }
    return 0;
}

/* ---- Checks ------------------------------------------------------------------------------ */

ty_status ty_launch_check_blocks(const launch *l, const char *target, ty_error *error)
{
    if (!l->is_blocked)
        return ty_launch_refuse(
            error, target,
            "it numbers processes host by host, and this plan's order goes to and "
            "fro between hosts or devices; mpirun and slurm can place it");
    if (l->per_host == 0)
        return ty_launch_refuse(
            error, target,
            "it wants equally many processes on each host; found %u on %s and %u "
            "on %s",
            l->hosts[0].process_count, l->hosts[0].name, l->hosts[l->host_count - 1].process_count,
            l->hosts[l->host_count - 1].name);
    if (l->first_slot == UINT32_MAX)
        return ty_launch_refuse(error, target,
                                "the plan uses other devices on one host than on the next");
    return TY_OK;
}

static ty_status check_shape(const ty_plan *plan, const char *target, ty_error *error)
{
    if (plan->workload->learning != TY_LEARNING_GRADIENT)
        return ty_launch_refuse(error, target,
                                "it trains by gradients of samples that there are, and the "
                                "workload by %s",
                                ty_learning_name(plan->workload->learning));
    if (plan->stage_count > 1)
        return ty_launch_refuse(error, target,
                                "it has no pipelines, and the plan has %u stages; plan with "
                                "--fix pp=1, or export to mpirun, slurm or megatron",
                                plan->stage_count);
    for (int k = 0; k < TY_LANE_KIND_COUNT; k++)
        if (ty_plan_lanes(plan, (ty_lane_kind)k) > 1)
            return ty_launch_refuse(error, target,
                                    "it divides no layers, and the plan has %s parallelism of %u; "
                                    "megatron has it",
                                    ty_lane_kind_name((ty_lane_kind)k),
                                    ty_plan_lanes(plan, (ty_lane_kind)k));
    if (plan->staleness > 0)
        return ty_launch_refuse(
            error, target,
            "it waits for the gradients of every step, and the plan's may be %u "
            "late; plan with --fix staleness=0, or export to mpirun or slurm",
            plan->staleness);
    if (plan->exchange_order != NULL)
        return ty_launch_refuse(error, target, TY_LAUNCH_NO_PRIORITY);
    if (plan->workload->local_steps > 1)
        return ty_launch_refuse(
            error, target,
            "it averages gradients in every step, and the workload's weights are "
            "averaged every %u steps",
            plan->workload->local_steps);
    return TY_OK;
}

/* Frameworks check single blocks, and attention keeps no scores by itself. */
static ty_status check_recompute(const launch *l, const char *target, ty_error *error)
{
    const ty_plan_stage *stage = &l->plan->stages[0];

    if (!ty_recompute_has_segments(stage->recompute))
        return TY_OK;
    if (stage->recompute == TY_RECOMPUTE_FULL && stage->recompute_blocks != 1)
        return ty_launch_refuse(error, target,
                                "it recomputes block by block, and the plan several blocks at a "
                                "time; plan with --fix recompute=full");
    if (ty_launch_blocks(l) == 0)
        return ty_launch_refuse(
            error, target,
            "it recomputes the blocks that a model lists, and %.80s repeats "
            "none; plan with --fix recompute=none, or export to mpirun or slurm",
            l->plan->workload->name);
    return TY_OK;
}

ty_status ty_launch_check_data_parallel(const launch *l, const char *target, uint32_t largest_zero,
                                        ty_error *error)
{
    const ty_plan *plan = l->plan;
    ty_status status = check_shape(plan, target, error);

    if (status != TY_OK)
        return status;
    if (plan->zero > largest_zero)
        return ty_launch_refuse(error, target, "it has no ZeRO %u; deepspeed and torchrun have",
                                plan->zero);
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        ty_compression_kind kind = plan->buckets[b].compression.kind;
        if (kind != TY_COMPRESSION_NONE && kind != TY_COMPRESSION_FP16 &&
            kind != TY_COMPRESSION_BF16 && kind != TY_COMPRESSION_ROWS)
            return ty_launch_refuse(error, target,
                                    "it has no %s compression; plan with --fix compression=fp16 or "
                                    "none, or export to mpirun or slurm",
                                    ty_compression_name(kind));
    }
    if (plan->workload->precision == TY_PRECISION_FP8 && ty_launch_blocks(l) == 0)
        return ty_launch_refuse(error, target,
                                "products in fp8 are those of the blocks that a model lists, and "
                                "%.80s repeats none; plan with --precision bf16",
                                plan->workload->name);
    status = check_recompute(l, target, error);
    return status == TY_OK ? ty_launch_check_blocks(l, target, error) : status;
}

/* ---- Precision --------------------------------------------------------------------------- */

const char *ty_launch_precision(const ty_plan *plan, const ty_cluster *cluster)
{
    if (ty_trains_in_fp16(plan->workload, cluster, ty_plan_device_of_rank(plan, 0)))
        return "fp16";
    if (plan->workload->element_bytes != 2)
        return plan->workload->precision == TY_PRECISION_TF32 ? "tf32" : "fp32";
    return "bf16";
}

const char *ty_launch_backend(const ty_plan *plan, const ty_cluster *cluster)
{
    const uint32_t width = ty_plan_width(plan), count = ty_plan_process_count(plan);
    uint32_t processors = 0, gpus = 0;

    for (uint32_t p = 0; p < count; p++) {
        const ty_device_type *type =
            ty_cluster_device_type(cluster, ty_plan_device_of_lane(plan, p / width, p % width));
        processors += type->core_share > 0;
        gpus += ty_is_nccl_device(type->name);
    }
    return processors == count ? "cpu" : gpus == count ? "cuda" : NULL;
}

const char *ty_launch_gradient_precision(const launch *l)
{
    for (uint32_t b = 0; b < l->plan->bucket_count; b++) {
        if (l->plan->buckets[b].compression.kind == TY_COMPRESSION_FP16)
            return "fp16";
        if (l->plan->buckets[b].compression.kind == TY_COMPRESSION_BF16)
            return "bf16";
    }
    return "fp32";
}

/* ---- Buckets ----------------------------------------------------------------------------- */

static bool is_of_range(const ty_bucket *bucket)
{
    return bucket->tied_stage == TY_NO_STAGE && !bucket->of_experts;
}

/* Buckets that are full with so many bytes, and whether each begins where the plan's does. */
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
            /* The plan's bucket that this layer is the first of, from behind. */
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

launch_bucket_limit ty_launch_bucket_limit(const launch *l)
{
    const ty_plan *plan = l->plan;
    launch_bucket_limit limit = {.bytes = UINT64_MAX};
    uint64_t largest = 1, low = 1, high;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *next = b + 1 < plan->bucket_count ? &plan->buckets[b + 1] : NULL;
        if (plan->buckets[b].gradient_bytes > largest)
            largest = plan->buckets[b].gradient_bytes;
        limit.planned += is_of_range(&plan->buckets[b]);
        /* The last of a stage is closed by its end, whatever it has. */
        if (is_of_range(&plan->buckets[b]) && next != NULL && is_of_range(next) &&
            next->stage == plan->buckets[b].stage && plan->buckets[b].gradient_bytes < limit.bytes)
            limit.bytes = plan->buckets[b].gradient_bytes;
    }
    if (limit.bytes == UINT64_MAX)
        limit.bytes = largest;
    limit.count = fill_buckets(plan, limit.bytes, &limit.is_as_planned);
    if (limit.is_as_planned)
        return limit;
    /* The largest that makes as many: more bytes make fewer. */
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

/* "Ring" or "Tree" where all exchanges go one way; NULL where they differ, where there are none,
 * and for what NCCL has no name for. */
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

/* Whether every link at a network switch is Ethernet without RDMA, by the catalogue's kinds. */
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

bool ty_launch_has_rdma(const launch *l)
{
    return l->has_accelerators && l->host_count > 1 && !is_plain_ethernet(l->input->cluster) &&
           (l->input->rdma == NULL || strcmp(l->input->rdma, "none") != 0);
}

/* Names of variables: NCCL's user guide, "Environment variables". */
uint32_t ty_launch_environment(const launch *l, launch_variable out[LAUNCH_MOST_VARIABLES])
{
    uint32_t count = 0;
    const char *algorithm = only_algorithm(l->plan);

    out[count++] = (launch_variable){"OMP_NUM_THREADS", "1", "processes share their host's cores"};
    if (!l->has_accelerators)
        return count;
    out[count++] = (launch_variable){"NCCL_DEBUG", "WARN", "NCCL says what it cannot do"};
    if (algorithm != NULL)
        out[count++] = (launch_variable){"NCCL_ALGO", algorithm,
                                         "the collective the plan counts on; unset to let NCCL "
                                         "choose"};
    if (l->host_count > 1 && is_plain_ethernet(l->input->cluster))
        out[count++] = (launch_variable){"NCCL_IB_DISABLE", "1",
                                         "the hosts are joined by Ethernet without RDMA"};
    return count;
}

void ty_launch_export_environment(const launch *l, ty_text *text)
{
    launch_variable variables[LAUNCH_MOST_VARIABLES];
    uint32_t count = ty_launch_environment(l, variables);

    for (uint32_t v = 0; v < count; v++)
        ty_text_addf(text, "# %s\nexport %s=%s\n", variables[v].why, variables[v].name,
                     variables[v].value);
}

/* ---- Files ------------------------------------------------------------------------------- */

ty_status ty_launch_add_ranks(launch *l, ty_error *error)
{
    ty_text text = {0};

    ty_launch_comments(l, "# ", &text);
    ty_text_add(&text, "# process host device stage replica lane\n");
    for (uint32_t p = 0; p < l->process_count; p++) {
        const launch_process *process = &l->processes[p];
        uint32_t stage = ty_plan_stage_of_rank(l->plan, process->rank);
        ty_text_addf(&text, "%u %s %u %u %u %u\n", p, l->hosts[process->host].name, process->slot,
                     stage, process->rank - ty_plan_first_rank(l->plan, stage), process->lane);
    }
    return ty_launch_add(l, "ranks.txt", &text, false, error);
}

ty_status ty_launch_add_rank_script(launch *l, ty_error *error)
{
    ty_text text = {0};

    ty_text_add(&text, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", &text);
    ty_text_add(&text,
                "# Gives a process the device that ranks.txt names, then becomes the program.\n"
                "set -eu\n"
                "rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${SLURM_PROCID:?started without a "
                "rank}}}\n"
                "device=$(awk -v rank=\"$rank\" '$1 == rank { print $3 }' "
                "\"$(dirname \"$0\")/ranks.txt\")\n"
                "export CUDA_VISIBLE_DEVICES=\"${device:?rank $rank is not in ranks.txt}\"\n"
                "exec \"$@\"\n");
    return ty_launch_add(l, "rank.sh", &text, true, error);
}

ty_status ty_launch_add_job(launch *l, ty_error *error)
{
    ty_text text = {0};

    ty_text_add(&text, l->input->job);
    return ty_launch_add(l, "job.json", &text, false, error);
}

const char *ty_launch_script(const launch *l)
{
    return l->input->script != NULL ? l->input->script : "train.py";
}

void ty_launch_write_script_name(const launch *l, ty_text *text)
{
    ty_text_add(text, "script=");
    ty_quote_shell(text, ty_launch_script(l));
    ty_text_add(text, "\n");
}
