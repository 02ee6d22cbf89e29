/* Expert parallelism: all-to-all of token copies to the ranks of their experts, and back, as in
 * cpu_experts.c. Messages include the padding of an expert's copies; received copies are padded
 * again, so that products have few shapes. */
#include "cuda_stage.h"

static uint32_t ranks_of(const ty_stage_device *stage)
{
    return ep_size_of(&stage->options);
}

/* Numbers sent to and received from each rank on the way to the experts. */
typedef struct traffic {
    uint64_t sent[TY_MAX_PARALLEL_SIZE], arrived[TY_MAX_PARALLEL_SIZE];
} traffic;

static void traffic_count(const cuda_expert_copies *copies, uint32_t ranks, traffic *out)
{
    for (uint32_t l = 0; l < ranks; l++) {
        const uint64_t first = l * copies->experts, end = first + copies->experts;

        out->sent[l] = (uint64_t)(copies->starts[end] - copies->starts[first]) * copies->features;
        out->arrived[l] = 0;
        for (uint64_t e = first; e < end; e++)
            out->arrived[l] += (uint64_t)copies->arrived[e] * copies->features;
    }
}

/* Messages are ordered by rank, then by expert; the rows of experts by expert, then by rank. */
static void index_make(const cuda_expert_copies *copies, uint32_t ranks)
{
    int32_t next[TY_MAX_PARALLEL_SIZE], at = 0, row = 0;

    for (uint32_t l = 0; l < ranks; l++) {
        next[l] = at;
        for (uint64_t e = 0; e < copies->experts; e++)
            at += copies->arrived[l * copies->experts + e];
    }
    for (uint64_t e = 0; e < copies->experts; e++) {
        copies->first[e] = row;
        for (uint32_t l = 0; l < ranks; l++)
            for (int32_t i = 0; i < copies->arrived[l * copies->experts + e]; i++)
                copies->host_index[row++] = next[l]++;
        at = copies->first[e] + (int32_t)cuda_expert_padded((uint32_t)(row - copies->first[e]));
        while (row < at)
            copies->host_index[row++] = -1;
    }
    copies->first[copies->experts] = row;
}

ty_status cuda_experts_meet(ty_stage_device *stage, const cuda_expert_copies *copies,
                            ty_error *error)
{
    const uint32_t ranks = ranks_of(stage);
    const uint64_t all = ranks * copies->experts, bytes = all * sizeof *copies->counts;
    uint64_t counts[TY_MAX_PARALLEL_SIZE];
    ty_status status = TY_OK;

    for (uint32_t l = 0; l < ranks; l++)
        counts[l] = copies->experts;
    for (uint64_t e = 0; e < all; e++)
        copies->arrived[e] = copies->starts[e + 1] - copies->starts[e];
    CUDA_CHECK(cudaMemcpyAsync(copies->counts, copies->arrived, bytes, cudaMemcpyHostToDevice,
                               stage->own->stream),
               status, done);
    TY_CHECK(cuda_parallel_exchange(
                 stage,
                 &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                         .kind = TY_ALL_TO_ALL,
                                         .element = TY_ELEMENT_FLOAT, /* four bytes, only copied */
                                         .data = copies->counts,
                                         .sent_counts = counts,
                                         .received_counts = counts,
                                         .received = copies->counts + all},
                 error),
             status, done);
    CUDA_CHECK(cudaMemcpyAsync(copies->arrived, copies->counts + all, bytes, cudaMemcpyDeviceToHost,
                               stage->own->stream),
               status, done);
    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    index_make(copies, ranks);
    CUDA_CHECK(cudaMemcpyAsync(copies->index, copies->host_index,
                               (uint64_t)copies->first[copies->experts] * sizeof *copies->index,
                               cudaMemcpyHostToDevice, stage->own->stream),
               status, done);
done:
    return status;
}

ty_status cuda_experts_send(ty_stage_device *stage, const cuda_expert_copies *copies, void *own,
                            void *by_expert, ty_error *error)
{
    const uint32_t ranks = ranks_of(stage);
    const uint64_t rows = (uint64_t)copies->first[copies->experts];
    traffic t;
    ty_status status;

    traffic_count(copies, ranks, &t);
    status = cuda_parallel_exchange(stage,
                                    &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                                            .kind = TY_ALL_TO_ALL,
                                                            .element = stage->element_kind,
                                                            .data = own,
                                                            .sent_counts = t.sent,
                                                            .received_counts = t.arrived,
                                                            .received = copies->received},
                                    error);
    if (status == TY_OK && rows > 0)
        cuda_rows_take(stage->own->type, rows, copies->features, copies->index, copies->received,
                       by_expert, stage->own->stream);
    return status;
}

ty_status cuda_experts_return(ty_stage_device *stage, const cuda_expert_copies *copies,
                              const void *by_expert, void *own, ty_error *error)
{
    const uint32_t ranks = ranks_of(stage);
    const uint64_t rows = (uint64_t)copies->first[copies->experts];
    traffic t;

    traffic_count(copies, ranks, &t);
    if (rows > 0)
        cuda_rows_put(stage->own->type, rows, copies->features, copies->index, by_expert,
                      copies->received, stage->own->stream);
    return cuda_parallel_exchange(stage,
                                  &(ty_parallel_exchange){.among = TY_EXPERT_PARALLEL,
                                                          .kind = TY_ALL_TO_ALL,
                                                          .element = stage->element_kind,
                                                          .data = copies->received,
                                                          .sent_counts = t.arrived,
                                                          .received_counts = t.sent,
                                                          .received = own},
                                  error);
}
