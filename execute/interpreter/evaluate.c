/* Evaluation: runs the test set forward through the pipeline with the current weights. */
#include "interpreter_parallel.h"
#include "sharding.h"

enum { SUM_TAG = 3, BATCH_TAG = 4, STATISTICS_TAG = 9 };

typedef struct totals {
    double loss_sum, correct, labels;
} totals;

/* Sums doubles over all ranks: tensor-parallel ranks all have the same loss, so its mean is that of
 * one; context-parallel and expert-parallel ranks have that of their tokens. */
static ty_status sum_over_ranks(ty_interpreter *in, double *values, uint32_t count, ty_error *error)
{
    return ty_collective_run(in->options.transport,
                             &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                      .algorithm = TY_TREE,
                                                      .member_count = in->options.transport->size,
                                                      .data = values,
                                                      .count = count,
                                                      .element = TY_ELEMENT_DOUBLE,
                                                      .tag = SUM_TAG},
                             error);
}

/* Replicas, and expert-parallel ranks of each, have seen different samples: averages their
 * statistics. */
ty_status interpreter_statistics_average(ty_interpreter *in,
                                         const virtual_stage_state *virtual_stage, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t ranks = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);
    const uint32_t replicas = plan->stages[virtual_stage->stage].replicas * ranks;
    const uint32_t first = ty_plan_first_replica(plan, virtual_stage->stage),
                   width = ty_plan_replica_ranks(plan);
    uint64_t count = 0, i;
    float *own = in->options.backend->statistics(virtual_stage->device, &count), *statistics = own;
    uint32_t *members = NULL, q;
    ty_status status = TY_OK;

    if (replicas == 1 || count == 0)
        return TY_OK;
    if (in->memory != NULL)
        statistics = ty_alloc(count, sizeof *statistics);
    members = ty_alloc(replicas, sizeof *members);
    TY_CHECK(ty_check_memory(members != NULL && statistics != NULL, error), status, cleanup);
    if (in->memory != NULL)
        TY_CHECK(
            in->memory->read(virtual_stage->device, statistics, own, count * sizeof *own, error),
            status, cleanup);
    for (q = 0; q < replicas; q++)
        members[q] = (first + q / ranks) * width +
                     ty_plan_rank_along(plan, TY_EXPERT_PARALLEL, in->replica_rank, q % ranks);
    TY_CHECK(ty_collective_run(in->options.transport,
                               &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                        .algorithm = TY_RING,
                                                        .members = members,
                                                        .member_count = replicas,
                                                        .data = statistics,
                                                        .count = count,
                                                        .element = TY_ELEMENT_FLOAT,
                                                        .tag = STATISTICS_TAG},
                               error),
             status, cleanup);
    for (i = 0; i < count; i++)
        statistics[i] /= (float)replicas;
    if (in->memory != NULL)
        status =
            in->memory->write(virtual_stage->device, own, statistics, count * sizeof *own, error);
cleanup:
    if (in->memory != NULL)
        ty_free(statistics);
    ty_free(members);
    return status;
}

static ty_status evaluating_set(ty_interpreter *in, bool is_evaluating, ty_error *error)
{
    const ty_device_backend *backend = in->options.backend;
    ty_status status = TY_OK;

    for (uint32_t h = 0;
         h < in->virtual_stage_count && backend->set_evaluating != NULL && status == TY_OK; h++) {
        backend->set_evaluating(in->virtual_stages[h].device, is_evaluating);
        if (is_evaluating)
            status = interpreter_statistics_average(in, &in->virtual_stages[h], error);
    }
    return status;
}

static ty_status load(ty_interpreter *in, const virtual_stage_state *virtual_stage,
                      const ty_dataset *dataset, uint64_t batch, ty_error *error)
{
    const uint64_t first =
        batch * in->options.plan->micro_batch_size + interpreter_first_sample(in);
    const whole_sample rows = interpreter_slot_rows(in, virtual_stage, 0);
    ty_status status = TY_OK;

    for (uint64_t j = 0; j < interpreter_rank_samples(in); j++)
        ty_dataset_expect(dataset, first + j);
    for (uint64_t j = 0; j < interpreter_rank_samples(in) && status == TY_OK; j++)
        status = interpreter_sample_load(in, &rows, dataset, first + j, j, error);
    return status;
}

/* One micro-batch's activation from the stage before, into slot 0. */
static ty_status cut_receive(ty_interpreter *in, const virtual_stage_state *virtual_stage,
                             uint32_t from, uint64_t bytes, ty_error *error)
{
    float *input = in->options.backend->input(virtual_stage->device, 0);
    void *host = input;
    ty_status status;

    if (in->memory != NULL && (host = ty_alloc(1, bytes)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for activations");
    status = ty_transport_receive(in->options.transport, from, BATCH_TAG, host, bytes, error);
    if (in->memory != NULL) {
        if (status == TY_OK)
            status = in->memory->write(virtual_stage->device, input, host, bytes, error);
        ty_free(host);
    }
    return status;
}

static ty_status cut_send(ty_interpreter *in, const virtual_stage_state *virtual_stage, uint32_t to,
                          uint64_t bytes, ty_error *error)
{
    const float *output = NULL;
    float *owned = NULL;
    ty_status status;

    TY_CHECK(interpreter_host_floats(in, in->options.backend->output(virtual_stage->device, 0),
                                     bytes / sizeof(float), &output, &owned, error),
             status, done);
    status = ty_transport_send(in->options.transport, to, BATCH_TAG, output, bytes, error);
done:
    ty_free(owned);
    return status;
}

static uint32_t replica_of(const ty_plan *plan, uint32_t stage, uint64_t batch)
{
    return ty_plan_first_replica(plan, stage) + (uint32_t)(batch % plan->stages[stage].replicas);
}

static ty_status pass(ty_interpreter *in, const virtual_stage_state *virtual_stage,
                      const ty_dataset *dataset, uint64_t batch, totals *sum, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_device_backend *backend = in->options.backend;
    bool is_first = virtual_stage->stage == 0,
         is_last = virtual_stage->stage + 1 == plan->stage_count;
    double loss_sum = 0;
    uint64_t correct = 0, labels = 0;

    if (is_first || is_last)
        TY_TRY(load(in, virtual_stage, dataset, batch, error));
    if (!is_first)
        TY_TRY(cut_receive(in, virtual_stage,
                           interpreter_rank(in, replica_of(plan, virtual_stage->stage - 1, batch)),
                           ty_plan_transfer_bytes(plan, virtual_stage->stage, TY_ACTIVATION),
                           error));
    TY_TRY(interpreter_forward_alone(in, virtual_stage, true, error));
    if (!is_last)
        return cut_send(in, virtual_stage,
                        interpreter_rank(in, replica_of(plan, virtual_stage->stage + 1, batch)),
                        ty_plan_transfer_bytes(plan, virtual_stage->stage + 1, TY_ACTIVATION),
                        error);
    backend->loss(virtual_stage->device, 0, &loss_sum, &correct, &labels);
    sum->loss_sum += loss_sum;
    sum->correct += (double)correct;
    sum->labels += (double)labels;
    return TY_OK;
}

/* Tests on the data set, or on corridors, with the current weights. */
static ty_status test(ty_interpreter *in, const ty_dataset *dataset, uint64_t batches, totals *sum,
                      ty_error *error)
{
    const uint32_t replicas = in->options.plan->stages[in->pipeline_rank].replicas;
    uint64_t batch;

    if (scenario_plays(&in->scenario))
        return scenario_test(&in->scenario, &sum->loss_sum, &sum->correct, &sum->labels, error);
    for (batch = in->replica; batch < batches; batch += replicas)
        for (uint32_t h = 0; h < in->virtual_stage_count; h++)
            TY_TRY(pass(in, &in->virtual_stages[h], dataset, batch, sum, error));
    /* Other replicas have one more batch, whose gathers need all replicas. */
    if (batch - in->replica < batches)
        for (uint32_t h = 0; h < in->virtual_stage_count; h++)
            TY_TRY(interpreter_forward_alone(in, &in->virtual_stages[h], false, error));
    return TY_OK;
}

ty_status ty_interpreter_evaluate(ty_interpreter *in, const ty_dataset *dataset,
                                  const ty_variant *variant, double *loss, double *accuracy,
                                  ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    double batches = 0;
    totals sum = {0};
    float **trained = NULL;
    const bool is_of_data = !scenario_plays(&in->scenario);
    ty_status status;

    if (in->options.transport->rank == 0 && is_of_data)
        /* Full ones. NOLINTNEXTLINE(bugprone-integer-division) */
        batches = (double)(ty_dataset_sample_count(dataset) / plan->micro_batch_size);
    TY_CHECK(evaluating_set(in, true, error), status, broken);
    TY_CHECK(sum_over_ranks(in, &batches, 1, error), status, broken);
    if (batches < 1 && is_of_data)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "the test set is smaller than one micro-batch of %u samples",
                       plan->micro_batch_size);
    if (variant != NULL)
        TY_CHECK(interpreter_variant_make(in, variant, &trained, error), status, broken);
    TY_CHECK(interpreter_weights_together(in, error), status, broken);
    TY_CHECK(test(in, dataset, (uint64_t)batches, &sum, error), status, broken);
    if (variant != NULL)
        TY_CHECK(interpreter_variant_over(in, trained, error), status, broken);
    TY_CHECK(sum_over_ranks(in, &sum.loss_sum, sizeof sum / sizeof(double), error), status, broken);
    TY_CHECK(evaluating_set(in, false, error), status, broken);
    interpreter_shares_only(in);
    *loss = sum.loss_sum / sum.labels;
    *accuracy = sum.correct / sum.labels;
    interpreter_variant_free(in, trained);
    return TY_OK;

broken:
    interpreter_variant_free(in, trained);
    in->options.transport->is_broken = true;
    return status;
}
