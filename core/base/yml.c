/* YAML by libyaml. */
#include "yml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct yml_document {
    yaml_document_t document;
};

/* libyaml does not always report a lack of memory, but it always reports malformed text. */
static ty_status status_of(const yaml_parser_t *parser)
{
    return parser->error == YAML_MEMORY_ERROR || parser->error == YAML_NO_ERROR ? TY_ENOMEM
                                                                                : TY_EPARSE;
}

/* Checks with the scanner only, before building a tree: rejects aliases and excessive nesting. */
static ty_status check_events(const char *text, size_t length, const char *name, ty_error *error)
{
    enum { DEPTH_LIMIT = 64 };
    yaml_parser_t parser;
    ty_status status = TY_OK;
    int depth = 0;
    bool is_end = false;

    if (!yaml_parser_initialize(&parser))
        return ty_fail(error, TY_ENOMEM, "out of memory for YAML");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    while (status == TY_OK && !is_end) {
        yaml_event_t event;
        unsigned line;
        if (!yaml_parser_parse(&parser, &event)) {
            status = ty_fail(error, status_of(&parser),
                             "%.200s:%zu: found malformed YAML (%.100s), expected well-formed",
                             name, parser.problem_mark.line + 1,
                             parser.problem != NULL ? parser.problem : "no reason given");
            break;
        }
        line = (unsigned)event.start_mark.line + 1;
        depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        is_end = event.type == YAML_STREAM_END_EVENT;
        if (event.type == YAML_ALIAS_EVENT)
            status =
                ty_fail(error, TY_EPARSE, "%.200s:%u: found an alias, expected none", name, line);
        else if (depth > DEPTH_LIMIT)
            status = ty_fail(error, TY_EPARSE, "%.200s:%u: found nesting deeper than %d", name,
                             line, DEPTH_LIMIT);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

/* ---- Keys ---------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    const yaml_node_t *x = *(const yaml_node_t *const *)a, *y = *(const yaml_node_t *const *)b;
    int order = strcmp((const char *)x->data.scalar.value, (const char *)y->data.scalar.value);

    return order != 0 ? order : (x->start_mark.index > y->start_mark.index ? 1 : -1);
}

/* The second of two equal keys of a mapping; NULL: none. @param keys room for all */
static const yaml_node_t *find_twice(yaml_document_t *d, const yaml_node_t *mapping,
                                     const yaml_node_t **keys)
{
    size_t count = 0;

    for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start;
         p < mapping->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(d, p->key);
        if (key->type == YAML_SCALAR_NODE)
            keys[count++] = key;
    }
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++)
        if (strcmp((const char *)keys[i - 1]->data.scalar.value,
                   (const char *)keys[i]->data.scalar.value) == 0)
            return keys[i];
    return NULL;
}

/* A key may occur only once in a mapping: YAML requires it, libyaml does not check. */
static ty_status check_keys(yaml_document_t *d, const char *name, ty_error *error)
{
    size_t nodes = (size_t)(d->nodes.top - d->nodes.start);
    const yaml_node_t **keys = ty_alloc(nodes, sizeof *keys), *twice = NULL;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(keys != NULL, error));
    for (const yaml_node_t *n = d->nodes.start; n < d->nodes.top && twice == NULL; n++)
        if (n->type == YAML_MAPPING_NODE)
            twice = find_twice(d, n, keys);
    if (twice != NULL)
        status = ty_fail(error, TY_EPARSE,
                         "%.200s:%zu: found key \"%.40s\" a second time, expected it once", name,
                         twice->start_mark.line + 1, (const char *)twice->data.scalar.value);
    ty_free(keys);
    return status;
}

/* ---- Documents ----------------------------------------------------------------------------- */

ty_status yml_parse(const char *text, size_t length, const char *name, yml_document **out,
                    ty_error *error)
{
    yml_document *d;
    yaml_parser_t parser;
    ty_status status = TY_OK;

    TY_TRY(check_events(text, length, name, error));
    TY_TRY(ty_check_memory((d = ty_alloc(1, sizeof *d)) != NULL, error));
    if (!yaml_parser_initialize(&parser)) {
        ty_free(d);
        return ty_fail(error, TY_ENOMEM, "out of memory for YAML");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (!yaml_parser_load(&parser, &d->document)) {
        status = ty_fail(error, status_of(&parser),
                         "%.200s:%zu: found malformed YAML, expected well-formed", name,
                         parser.problem_mark.line + 1);
        ty_free(d);
    } else if (yaml_document_get_root_node(&d->document) == NULL) {
        status = ty_fail(error, TY_EPARSE, "%.200s: found no document, expected one", name);
        yml_free(d);
    } else if ((status = check_keys(&d->document, name, error)) != TY_OK) {
        yml_free(d);
    } else {
        *out = d;
    }
    yaml_parser_delete(&parser);
    return status;
}

void yml_free(yml_document *document)
{
    if (document == NULL)
        return;
    yaml_document_delete(&document->document);
    ty_free(document);
}

/* libyaml takes its documents without const, and does not write to them here. */
static const yaml_node_t *node_of(yml_node node)
{
    if (node.document == NULL)
        return NULL;
    return yaml_document_get_node((yaml_document_t *)(void *)&node.document->document, node.index);
}

yml_node yml_root(const yml_document *document)
{
    return (yml_node){document, 1};
}

const char *yml_text(yml_node node)
{
    const yaml_node_t *n = node_of(node);
    return n != NULL && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : "";
}

bool yml_is_sequence(yml_node node)
{
    const yaml_node_t *n = node_of(node);
    return n != NULL && n->type == YAML_SEQUENCE_NODE;
}

bool yml_is_mapping(yml_node node)
{
    const yaml_node_t *n = node_of(node);
    return n != NULL && n->type == YAML_MAPPING_NODE;
}

unsigned yml_line(yml_node node)
{
    const yaml_node_t *n = node_of(node);
    return n != NULL ? (unsigned)n->start_mark.line + 1 : 0;
}

size_t yml_size(yml_node node)
{
    const yaml_node_t *n = node_of(node);

    if (yml_is_sequence(node))
        return (size_t)(n->data.sequence.items.top - n->data.sequence.items.start);
    if (yml_is_mapping(node))
        return (size_t)(n->data.mapping.pairs.top - n->data.mapping.pairs.start);
    return 0;
}

yml_node yml_at(yml_node node, size_t i, yml_node *key)
{
    const yaml_node_t *n = node_of(node);

    if (key != NULL)
        *key = (yml_node){0};
    if (yml_is_sequence(node))
        return (yml_node){node.document, n->data.sequence.items.start[i]};
    if (key != NULL)
        *key = (yml_node){node.document, n->data.mapping.pairs.start[i].key};
    return (yml_node){node.document, n->data.mapping.pairs.start[i].value};
}

yml_node yml_get(yml_node node, const char *key)
{
    for (size_t i = 0; yml_is_mapping(node) && i < yml_size(node); i++) {
        yml_node name, value = yml_at(node, i, &name);
        if (strcmp(yml_text(name), key) == 0)
            return value;
    }
    return (yml_node){0};
}
