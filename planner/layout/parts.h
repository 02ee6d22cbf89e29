/* What the files of planner/layout/ share: the costs of one layer and of both ends of the model for
 * one micro-batch, and how a layout's groups lie in the hosts. */
#ifndef TY_LAYOUT_PARTS_H
#define TY_LAYOUT_PARTS_H

#include "ty_layout.h"

/* Bytes of a number on the way through the layers. */
double layout_element_bytes(ty_layout_precision precision);
double layout_peak(const ty_layout_device *device, ty_layout_precision precision);

/* ---- Parameters ------------------------------------------------------------------------------ */

/** Numbers of one layer: those every tensor parallel rank shares out, and those of experts. */
typedef struct layout_parameters {
    double layer;     /* without experts */
    double experts;   /* all experts of a layer; 0: dense */
    double embedding; /* with positions */
    double head;      /* of its own; 0 where tied */
} layout_parameters;
layout_parameters layout_parameters_of(const ty_layout_shape *shape);
double layout_expert_layers(const ty_layout_shape *shape); /* how many layers have experts */

/* ---- Groups ---------------------------------------------------------------------------------- */

/** A group of `members` ranks, `stride` apart. */
ty_layout_group layout_group(const ty_layout_cluster *cluster, uint32_t stride, uint32_t members);
double layout_collect(const ty_layout_question *q, ty_collective_kind kind,
                      const ty_layout_group *group, double bytes);
double layout_all_to_all(const ty_layout_question *q, const ty_layout_group *group, double bytes);
/** Seconds of a transfer between neighbouring stages, of what all tensor parallel ranks need. */
double layout_send(const ty_layout_question *q, const ty_layout *l, double bytes);

/* ---- One layer, one micro-batch ---------------------------------------------------------------
 */

/** Depends on the layout's tensor, context, expert, micro_batch, recompute, precision,
 * sequence_parallel and overlap_tensor alone, so that a search keeps them in a table. Seconds of a
 * pass are the longer of device and host, communication included. */
typedef struct layout_cell {
    double forward_s, backward_s, recompute_s;
    double weight_s;                      /* part of backward that nobody waits for */
    double tensor_s, context_s, expert_s; /* exposed, of all three passes */
    double embedding_s, head_s;           /* forward and backward of the model's ends */
    double kept_bytes;                    /* per layer between forward and backward */
    double layer_bytes;                   /* of the layer that is at work */
    double head_bytes, embedding_bytes;   /* kept by the ends */
    double message_bytes;                 /* what the next stage needs of one replica */
} layout_cell;
void layout_cell_of(const ty_layout_question *q, const ty_layout *l, layout_cell *out);

/* ---- Stages ---------------------------------------------------------------------------------- */

/** Layers of the first, the middle and the last stage: what does not divide goes to the middle. */
typedef struct layout_stages {
    double first, middle, last;
} layout_stages;
layout_stages layout_stages_of(uint32_t layers, uint32_t pipeline);
static inline uint32_t layout_micro_batches(const ty_layout_question *q, const ty_layout *l)
{
    return q->global_batch / (l->data * l->micro_batch);
}

/** Numbers that a device of each kind of stage holds. */
typedef struct layout_share {
    double dense, experts;
} layout_share;
layout_share layout_first_share(const ty_layout_question *q, const ty_layout *l);
layout_share layout_middle_share(const ty_layout_question *q, const ty_layout *l);
layout_share layout_last_share(const ty_layout_question *q, const ty_layout *l);

void layout_memory_with(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                        ty_layout_memory *out);
/** Time, the memory already told. */
void layout_time_with(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                      ty_layout_estimate *out);

/* Whether there are figures for a compression of gradients, and whether it is a cast to 16 bits. */
bool layout_compresses(ty_compression_kind kind);
bool layout_is_cast(ty_compression_kind kind);

/* Whether a layout keeps the rules; NULL, or the rule it breaks. */
const char *layout_broken_rule(const ty_layout_question *q, const ty_layout *l);

#endif
