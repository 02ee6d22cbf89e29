/* Reading foreign YAML: a tree, by libyaml. It rejects aliases: no input needs them, and YAML bombs
 * consist of them. Only yml.c includes libyaml. */
#ifndef TY_YML_H
#define TY_YML_H

#include "ty_core.h"

typedef struct yml_document yml_document;

/** A node; valid as long as its document. `document` is NULL for none. */
typedef struct yml_node {
    const yml_document *document;
    int index;
} yml_node;

ty_status yml_parse(const char *text, size_t length, const char *name, yml_document **out,
                    ty_error *error) TY_MUST_CHECK;
void yml_free(yml_document *document);

yml_node yml_root(const yml_document *document);
/** Value of a key; none if `node` is not a mapping or has no such key. */
yml_node yml_get(yml_node node, const char *key);
/** Items of a sequence, pairs of a mapping; 0 for anything else. */
size_t yml_size(yml_node node);
/** The i-th item, or the value of the i-th pair; `key` gets its key, or none for an item (NULL: not
 *  wanted). */
yml_node yml_at(yml_node node, size_t i, yml_node *key);
/** Text of a scalar, "" for anything else. */
const char *yml_text(yml_node node);
bool yml_is_sequence(yml_node node);
bool yml_is_mapping(yml_node node);
unsigned yml_line(yml_node node);

#endif
