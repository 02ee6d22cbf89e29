/**
 * @file ty_deploy.h
 * A trained network on a small device: budgets of device classes, and the variants of a network
 * that keep them.
 *
 *     ty_budget budget = {0};
 *     ty_budget_read("memory=320KB,time=100ms,rate=250MFLOPS", &budget, &error);
 *     ty_deploy(workload, &budget, &deployment, &error);     // deployment.variant: "int4"
 *
 * What is asked of the device is one sample, forward: its weights lie in memory beside the largest
 * activations that are alive at once. How the network is trained is not touched by it.
 */
#ifndef TY_DEPLOY_H
#define TY_DEPLOY_H

#include "ty_json.h"
#include "ty_plan.h"
#include "ty_status.h"
#include "ty_text.h"

#include <stdbool.h>
#include <stdint.h>

/** Reads "int8", "fp16-pruned-50". @return TY_EINVAL: what was found, and what there is */
ty_status ty_variant_parse(const char *text, ty_variant *out, ty_error *error) TY_MUST_CHECK;
#define TY_VARIANT_TEXT_SIZE 24
/** Its inverse. */
void ty_variant_text(const ty_variant *variant, char out[TY_VARIANT_TEXT_SIZE]);
/** As a member of a document. */
ty_status ty_variant_from_json(const ty_json *object, const char *key, ty_variant *out,
                               ty_error *error) TY_MUST_CHECK;
/** Whether weights are others than those that were trained: not of fp32 without pruning. */
bool ty_variant_changes(const ty_variant *variant);

/** The candidates: what is pruned least first, of these the widest numbers first. */
#define TY_VARIANT_COUNT 16
ty_variant ty_variant_at(uint32_t index);

/** Of `elements` of a matrix, how many of the smallest magnitudes are pruned. */
uint64_t ty_variant_pruned(const ty_variant *variant, uint64_t elements);
/**
 * Bytes of the network's weights. Of every matrix (ty_layer_matrices) of n elements and r rows, of
 * which k are kept: k numbers of the variant's bits, as whole bytes; of integers a scale of 4 bytes
 * a row; where it is pruned a bit for each of the n, which says what is kept. All other
 * parameters (of experts, say) and the statistics of batch norms stay in 4 bytes each.
 */
uint64_t ty_variant_weight_bytes(const ty_workload *workload, const ty_variant *variant);

/** "memory=100KB,time=100ms,rate=1TFLOPS,bandwidth=10GB/s,variant=int8": sets what the words say.
 * A figure that is set leaves the budget without the name that it had.
 * @return TY_EINVAL naming the key, what was found and what was expected */
ty_status ty_budget_read(const char *text, ty_budget *budget, ty_error *error) TY_MUST_CHECK;
/** What must hold: there is a limit of memory or of time, and with time a rate. */
ty_status ty_budget_check(const ty_budget *budget, ty_error *error) TY_MUST_CHECK;
/** Appends the name, or the figures in these words. */
void ty_budget_words(const ty_budget *budget, ty_text *text);

/**
 * What a variant needs of a device:
 *   memory   ty_variant_weight_bytes, and the largest sum over layers of the activations that are
 *            alive while one is computed, the sample among them, in 4 bytes a number; what works in
 *            its input's memory counts once, and the loss is left out;
 *   time     sum over layers of the longer of flop / rate and bytes of weights read / bandwidth,
 *            each 0 where the budget does not say it. Of a table the rows of a sample are read.
 *            Zeros are multiplied as other numbers are: pruning saves memory and reading alone.
 * O(layers). @return TY_EINVAL where the network has no forward pass of its own: a layer that is
 * opaque, a teacher; TY_ENOMEM
 */
ty_status ty_variant_needs(const ty_workload *workload, const ty_variant *variant,
                           const ty_budget *budget, ty_variant_need *out,
                           ty_error *error) TY_MUST_CHECK;
bool ty_budget_is_kept(const ty_budget *budget, const ty_variant_need *need);

/**
 * The first variant that keeps the budget, or the one that it asks for if that does.
 * @return as ty_variant_needs and ty_budget_check; TY_EINFEASIBLE with the nearest variant
 */
ty_status ty_deploy(const ty_workload *workload, const ty_budget *budget, ty_deployment *out,
                    ty_error *error) TY_MUST_CHECK;

/** As a member of a document, with what every variant needs. */
ty_status ty_deployment_from_json(const ty_json *object, const char *key,
                                  const ty_workload *workload, ty_deployment *out,
                                  ty_error *error) TY_MUST_CHECK;
void ty_deployment_to_json(const ty_deployment *deployment, const ty_workload *workload,
                           ty_json_writer *writer, const char *key);

#endif
