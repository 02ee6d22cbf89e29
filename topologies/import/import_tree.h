/* A tree of network switches with catalogue hosts below, as in Slurm. */
#ifndef TY_IMPORT_TREE_H
#define TY_IMPORT_TREE_H

#include "importer.h"

typedef struct tree_node {
    char *name;
    uint32_t parent; /* switch; NO_INDEX: none (yet) */
    uint32_t host;   /* of the catalogue; NO_INDEX: a switch */
    unsigned line;   /* where it is first named */
    bool is_defined; /* defined by its own line, not only named as a child */
    double ports;    /* NICs below */
    uint32_t domain; /* of a host: index of its domain; NO_INDEX: none */
} tree_node;

/** Hosts whose devices share a switch, such as the trays of an NVL72. */
typedef struct tree_domain {
    char *name;
    uint32_t hosts, vertex;
} tree_domain;

/** Names of nodes are unique, in a hash table. Zero-initialize all but `im`. */
typedef struct tree {
    importer *im;
    ty_arena *arena;
    uint32_t count, room;
    tree_node *nodes;
    uint32_t slot_count;
    uint32_t *slots; /* [slot_count] node plus one */
    uint32_t domain_count, domain_room;
    tree_domain *domains;
} tree;

ty_status tree_open(tree *t, importer *im, ty_error *error) TY_MUST_CHECK;
void tree_close(tree *t);
/** Finds or adds the node of that name. Valid until the next is added. */
ty_status tree_node_of(tree *t, const char *name, unsigned line, uint32_t *node,
                       ty_error *error) TY_MUST_CHECK;
/** The node of that name; NO_INDEX if there is none. */
uint32_t tree_find(const tree *t, const char *name);
/** Finds or adds the domain of that name. */
ty_status tree_domain_of(tree *t, const char *name, uint32_t *domain,
                         ty_error *error) TY_MUST_CHECK;
/** The options' kind of host; for a rack modeled as one host, its trays, with a note. */
uint32_t tree_host(tree *t);
/** Puts a node below a switch; refused below two different ones. */
ty_status tree_hang(tree *t, uint32_t node, uint32_t parent, unsigned line,
                    ty_error *error) TY_MUST_CHECK;
/**
 * Adds switches and hosts to the cluster. Uplinks have the bandwidth of the links below divided by
 * the options' oversubscription. Refuses several roots, naming them, unless the options name one.
 * @param joint name of a switch that joins several roots; NULL: refused
 */
ty_status tree_build(tree *t, const char *joint, ty_error *error) TY_MUST_CHECK;

#endif
