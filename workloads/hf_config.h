/**
 * @file hf_config.h
 * What the readers of Hugging Face configurations share: a configuration in hand, and its keys
 * under the names that families give them. Internal to workloads/.
 *
 * A family is a row of the table in hf_families.c: what it takes for granted, and a function that
 * reads what its sizes do not say. Networks that are no stack of blocks behind one embedding have a
 * builder of their own (hf_vision.c, hf_diffusion.c).
 */
#ifndef TY_WORKLOADS_HF_CONFIG_H
#define TY_WORKLOADS_HF_CONFIG_H

#include "import_language.h"

typedef struct hf_config {
    ty_import_source *source;
    const ty_json *outer; /* the whole file */
    const ty_json *root;  /* the language model's part of it: `outer`, or its "text_config" */
    ty_error *error;
    ty_transformer t;
    ty_transformer_block *blocks; /* [t.blocks], once ty_hf_list_blocks made them; t.block_list */
} hf_config;

/** A network's family by its "model_type". */
typedef struct hf_family {
    const char *type;
    const char *telling; /* a key by which it is known where the type is missing, or NULL */
    ty_status (*finish)(hf_config *c);
    ty_transformer preset; /* sizes that are not 0 are those of files that leave them out */
    /** The network, where it is not a language model alone; NULL. */
    ty_status (*build)(hf_config *c, ty_builder **out);
} hf_family;

/** By "model_type", "_class_name", or `architectures`; where all are missing, by a telling key.
 *  Sets c->root. TY_EPARSE naming what is not known. */
ty_status ty_hf_find_family(hf_config *c, const hf_family **out) TY_MUST_CHECK;
/** Reads the sizes that most families have, then what the family has besides. */
ty_status ty_hf_read_sizes_of(hf_config *c, const hf_family *family) TY_MUST_CHECK;

/* ---- Keys ---- */

#define HF_MOST_NAMES 8
typedef const char *const hf_names[HF_MOST_NAMES];

bool ty_hf_has_any(const ty_json *object, const char *const *names);
/** The first of the names that is there; @param minimum of the value. Untouched where none is there
 * and none is needed. */
ty_status ty_hf_size_of(const hf_config *c, const ty_json *object, const char *const *names,
                        bool is_needed, uint64_t minimum, uint64_t *out) TY_MUST_CHECK;
/** Of c->root, under one name; untouched where it is not there. */
ty_status ty_hf_size(const hf_config *c, const char *key, uint64_t minimum,
                     uint64_t *out) TY_MUST_CHECK;
ty_status ty_hf_need_size(const hf_config *c, const char *key, uint64_t *out) TY_MUST_CHECK;
ty_status ty_hf_flag(const hf_config *c, const char *key, bool *out) TY_MUST_CHECK;
/** A text that may be absent: NULL. */
ty_status ty_hf_text(const hf_config *c, const char *key, const char **out) TY_MUST_CHECK;
/** Room for one entry a block, filled in as without a list. */
ty_status ty_hf_list_blocks(hf_config *c) TY_MUST_CHECK;

/* ---- Networks that are not language models alone ---- */

/** A language model whose sequence begins with an image's tokens, of the file's "vision_config". */
ty_status ty_hf_build_with_vision(hf_config *c, ty_builder **out) TY_MUST_CHECK;
ty_status ty_hf_build_vit(hf_config *c, ty_builder **out) TY_MUST_CHECK;
ty_status ty_hf_build_clip(hf_config *c, ty_builder **out) TY_MUST_CHECK;
ty_status ty_hf_build_whisper(hf_config *c, ty_builder **out) TY_MUST_CHECK;
ty_status ty_hf_build_dit(hf_config *c, ty_builder **out) TY_MUST_CHECK;
ty_status ty_hf_build_sd3(hf_config *c, ty_builder **out) TY_MUST_CHECK;
ty_status ty_hf_build_flux(hf_config *c, ty_builder **out) TY_MUST_CHECK;

/** A layer of no kind of the worker's: so many parameters, each of which meets `rows` rows of the
 * input; 0: none has a product. Named `name`. */
uint32_t ty_hf_opaque(ty_builder *b, const char *name, const uint32_t *inputs, uint32_t count,
                      const ty_shape *output, double parameters, double rows);

#endif
