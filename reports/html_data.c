/* Plans and runs as members of the report's document. */
#include "html.h"
#include "print.h"

#include "ty_topologies.h"

#include <math.h>
#include <string.h>

#define MOST_CANDIDATES 2000
#define MOST_POINTS 400 /* of a loss curve */

/* ---- Stages and memory --------------------------------------------------------------------- */

#define PURPOSES 7
_Static_assert(sizeof(ty_memory_use) == PURPOSES * sizeof(uint64_t), "the script names each");

static uint32_t layers_at(const ty_plan *plan, uint32_t pipeline_rank)
{
    uint32_t layers = 0;

    for (uint32_t s = pipeline_rank; s < plan->stage_count; s += ty_plan_pipeline_size(plan))
        layers += plan->stages[s].layer_count;
    return layers;
}

/* First pipeline rank with the same number of layers and replicas, bytes of every purpose and
 * recomputation; `pipeline_rank` itself if there is none before it. */
static uint32_t alike_pipeline_rank(const ty_plan *plan, uint32_t pipeline_rank)
{
    const ty_plan_stage *stage = &plan->stages[pipeline_rank];

    for (uint32_t p = 0; p < pipeline_rank; p++)
        if (plan->stages[p].replicas == stage->replicas &&
            plan->stages[p].recompute == stage->recompute &&
            plan->stages[p].recompute_blocks == stage->recompute_blocks &&
            layers_at(plan, p) == layers_at(plan, pipeline_rank) &&
            (plan->memory == NULL ||
             memcmp(&plan->memory[p], &plan->memory[pipeline_rank], sizeof *plan->memory) == 0))
            return p;
    return pipeline_rank;
}

/* Smallest usable memory among the devices of a plan; 0: unknown. */
static uint64_t capacity_of(const ty_plan *plan, const ty_cluster *cluster)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t s = 0; cluster != NULL && s < plan->stage_count; s++)
        for (uint32_t d = 0; d < plan->stages[s].replicas * ty_plan_replica_ranks(plan); d++) {
            const uint64_t usable =
                ty_device_usable_bytes(ty_cluster_device_type(cluster, plan->stages[s].devices[d]));
            least = usable < least ? usable : least;
        }
    return least == UINT64_MAX ? 0 : least;
}

/* Writes the first and last layer of the first and the last stage of a pipeline rank. */
static void put_spans(const ty_plan *plan, uint32_t pipeline_rank, ty_json_writer *w)
{
    const uint32_t last =
        pipeline_rank + (ty_plan_virtual_stages(plan) - 1) * ty_plan_pipeline_size(plan);

    ty_json_open(w, "spans", '[');
    for (uint32_t s = pipeline_rank; s <= last;
         s += last > pipeline_rank ? last - pipeline_rank : 1) {
        const ty_plan_stage *stage = &plan->stages[s];
        const ty_layer *first = &plan->workload->layers[stage->first_layer];
        if (stage->layer_count > 0)
            ty_report_put_row(w, "ss", first->name, first[stage->layer_count - 1].name);
        else
            ty_report_put_row(w, "");
    }
    ty_json_close(w, ']');
}

static void put_stages(const ty_plan *plan, ty_json_writer *w)
{
    ty_json_open(w, "stages", '[');
    for (uint32_t p = 0; p < ty_plan_pipeline_size(plan); p++) {
        const ty_plan_stage *stage = &plan->stages[p];
        const uint32_t like = alike_pipeline_rank(plan, p);
        uint64_t bytes[PURPOSES];
        ty_text recompute = {0};

        ty_json_open(w, NULL, '{');
        ty_json_put_uint(w, "like", like);
        if (like == p) {
            put_spans(plan, p, w);
            ty_json_put_uint(w, "layers", layers_at(plan, p));
            ty_json_put_uint(w, "replicas", stage->replicas);
            ty_recompute_text(stage->recompute, stage->recompute_blocks, &recompute);
            ty_report_put_taken(w, "recompute", &recompute);
        }
        if (like == p && plan->memory != NULL) {
            memcpy(bytes, &plan->memory[p], sizeof bytes);
            ty_json_open(w, "bytes", '[');
            for (int i = 0; i < PURPOSES; i++)
                ty_json_put_uint(w, NULL, bytes[i]);
            ty_json_close(w, ']');
        }
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
}

/* ---- Provenance ---------------------------------------------------------------------------- */

static void put_stack(const ty_plan *plan, const ty_cluster *cluster, ty_json_writer *w)
{
    const ty_stack_judged *judged = ty_plan_judged(plan, cluster);
    ty_text text = {0};

    ty_print_certainty(plan, cluster, &text);
    ty_report_put_taken(w, "certainty", &text);
    ty_json_put_string(w, "provenance", ty_provenance_name(plan->provenance));
    if (judged != NULL && plan->provenance != TY_MEASURED) {
        ty_json_open(w, "judged", '{');
        ty_json_put_number(w, "mean_error", judged->mean_error);
        ty_json_put_uint(w, "rows", judged->rows);
        ty_json_close(w, '}');
    }
    if (plan->stack == NULL)
        return;
    ty_json_put_bool(w, "is_fitted",
                     plan->provenance == TY_DATASHEET && cluster != NULL &&
                         plan->stack->fitted_count > 0 && !ty_workload_has_times(plan->workload));
    ty_report_put_text(w, "framework", plan->stack->name);
    ty_report_put_text(w, "framework_title", plan->stack->title);
    ty_report_put_text(w, "framework_source", plan->stack->source);
    if (plan->fix != NULL) {
        ty_plan_add_question(plan, &text);
        ty_text_addf(&text, " --fix %s", plan->fix);
        ty_report_put_taken(w, "reproduce", &text);
    }
}

static void put_deployment(const ty_deployment *d, ty_json_writer *w)
{
    char name[TY_VARIANT_TEXT_SIZE];
    ty_text text = {0};

    if (d->variant.bits == 0)
        return;
    ty_variant_text(&d->variant, name);
    ty_json_open(w, "deployment", '{');
    ty_json_put_string(w, "variant", name);
    ty_report_put_figure(w, "bytes",
                         (double)d->need.weight_bytes + (double)d->need.activation_bytes);
    ty_deployment_sentence(d, &text);
    ty_report_put_taken(w, "sentence", &text);
    ty_json_close(w, '}');
}

static void put_sources(const ty_plan *plan, const ty_cluster *cluster, ty_json_writer *w)
{
    const ty_device_type *last = NULL;
    ty_digest digest;

    ty_report_put_text(w, "workload_source", plan->workload->source);
    ty_report_put_text(w, "workload_digest", plan->workload_digest.hex);
    if (ty_cluster_digest(plan->cluster, &digest, NULL) == TY_OK)
        ty_json_put_string(w, "cluster_digest", digest.hex);
    if (plan->profile != NULL) {
        ty_report_put_text(w, "profile_machine", plan->profile->machine);
        ty_report_put_text(w, "profile_date", plan->profile->date);
        ty_report_put_text(w, "profile_versions", plan->profile->versions);
    }
    ty_json_open(w, "device_sources", '[');
    for (uint32_t d = 0; cluster != NULL && d < ty_cluster_device_count(cluster); d++) {
        const ty_device_type *type = ty_cluster_device_type(cluster, d);
        if (type != last)
            ty_report_put_row(w, "ss", type->name, type->source != NULL ? type->source : "");
        last = type;
    }
    ty_json_close(w, ']');
    ty_json_open(w, "uneven", '[');
    for (int kind = 0; kind < TY_IMBALANCE_COUNT; kind++) {
        ty_text text = {0};
        ty_print_uneven(plan, (ty_imbalance_kind)kind, &text);
        ty_report_put_taken(w, NULL, &text);
    }
    ty_json_close(w, ']');
}

/* ---- Plans --------------------------------------------------------------------------------- */

static void put_layout(const ty_plan *plan, ty_json_writer *w)
{
    ty_text text = {0};

    ty_json_put_uint(w, "devices", ty_plan_rank_count(plan));
    ty_json_put_uint(w, "idle_devices", plan->idle_devices);
    ty_json_put_uint(w, "launched", ty_plan_launched_count(plan));
    ty_json_put_uint(w, "servers", plan->servers.count);
    ty_json_put_uint(w, "stage_count", plan->stage_count);
    ty_json_put_uint(w, "interleave", ty_plan_virtual_stages(plan));
    ty_json_put_string(w, "schedule", ty_schedule_name(plan->schedule));
    ty_json_put_uint(w, "tensor_parallel", ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL));
    ty_json_put_uint(w, "context_parallel", ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL));
    ty_json_put_uint(w, "expert_parallel", ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL));
    ty_json_put_bool(w, "sequence_parallel", plan->sequence_parallel);
    if (plan->table_shard != TY_TABLES_WHOLE)
        ty_json_put_string(w, "table_shard", ty_table_shard_name(plan->table_shard));
    ty_json_open(w, "replicas", '[');
    for (uint32_t p = 0; p < ty_plan_pipeline_size(plan); p++)
        ty_json_put_uint(w, NULL, plan->stages[p].replicas);
    ty_json_close(w, ']');
    ty_json_put_uint(w, "zero", plan->zero);
    ty_json_put_uint(w, "global_batch", plan->global_batch);
    ty_print_micro_batches(plan, &text);
    ty_report_put_taken(w, "micro_batches", &text);
    ty_json_put_string(w, "precision", ty_precision_name(plan->workload->precision));
    ty_json_put_uint(w, "buckets", plan->bucket_count);
    if (plan->bucket_count > 0)
        ty_compression_text(&plan->buckets[0].compression, &text);
    ty_report_put_taken(w, "compression", &text);
}

/* [name, estimated, simulated, bytes, reason, on the Pareto front] */
static void put_candidates(const ty_plan *plan, ty_json_writer *w)
{
    ty_json_put_uint(w, "candidate_count", plan->candidate_count);
    ty_json_open(w, "candidates", '[');
    for (uint32_t i = 0; i < plan->candidate_count && i < MOST_CANDIDATES; i++) {
        const ty_candidate *c = &plan->candidates[i];
        ty_report_put_row(w, "sfflsu", c->name, c->step_time_s, c->simulated_step_time_s,
                          c->peak_memory_bytes, c->reason, (uint32_t)ty_plan_is_on_front(plan, i));
    }
    ty_json_close(w, ']');
}

void ty_report_put_plan(const ty_plan *plan, const ty_cluster *cluster, ty_json_writer *w,
                        const char *key)
{
    ty_json_open(w, key, '{');
    ty_json_put_string(w, "workload", plan->workload->name);
    ty_json_put_string(w, "cluster", plan->cluster_name);
    ty_json_put_string(w, "strategy", plan->strategy);
    ty_json_put_uint(w, "tokens_per_sample", plan->workload->tokens_per_sample);
    ty_json_put_string(w, "device_noun",
                       cluster == NULL ? "device"
                                       : ty_device_noun(ty_cluster_device_type(cluster, 0)));
    ty_json_put_uint(w, "usable_memory_bytes", capacity_of(plan, cluster));
    put_layout(plan, w);
    put_stages(plan, w);
    put_stack(plan, cluster, w);
    put_deployment(&plan->deployment, w);
    put_sources(plan, cluster, w);
    put_candidates(plan, w);
    ty_plan_interval_to_json(plan, w);
    ty_json_close(w, '}');
}

/* ---- Runs ---------------------------------------------------------------------------------- */

/* [step, seconds, accuracy, loss, accuracy and loss of the deployed variant] */
static void put_evaluations(const ty_run *run, ty_json_writer *w)
{
    ty_json_open(w, "evaluations", '[');
    for (uint32_t i = 0; i < run->evaluation_count; i++) {
        const ty_evaluation *e = &run->evaluations[i];
        ty_report_put_row(w, "ufffff", e->step, e->seconds, e->accuracy, e->loss,
                          e->variant_accuracy, e->variant_loss);
    }
    ty_json_close(w, ']');
}

void ty_report_put_run(const ty_run *run, ty_json_writer *w)
{
    const uint32_t stride = run->step_count / MOST_POINTS + 1;
    char name[TY_VARIANT_TEXT_SIZE];

    ty_json_open(w, "run", '{');
    ty_report_put_text(w, "machine", run->machine);
    ty_report_put_text(w, "date", run->date);
    ty_report_put_text(w, "versions", run->versions);
    ty_report_put_figure(w, "wall_s", run->wall_s);
    ty_json_put_uint(w, "step_count", run->step_count);
    if (run->losses != NULL && run->step_count >= 2) {
        ty_json_put_uint(w, "stride", stride);
        ty_report_put_figure(w, "last_loss", run->losses[run->step_count - 1]);
        ty_json_open(w, "losses", '[');
        for (uint32_t s = 0; s < run->step_count; s += stride)
            ty_report_put_figure(w, NULL, run->losses[s]);
        ty_json_close(w, ']');
    }
    if (run->variant.bits > 0) {
        ty_variant_text(&run->variant, name);
        ty_json_put_string(w, "variant", name);
    }
    put_evaluations(run, w);
    ty_json_close(w, '}');
}
