/* A tree of network switches with hosts of the catalogue below, as Slurm describes it. */
#ifndef TY_IMPORT_TREE_H
#define TY_IMPORT_TREE_H

#include "importer.h"

typedef struct tree_node {
    char *name;
    uint32_t parent; /* switch; NO_INDEX: none (yet) */
    uint32_t host;   /* of the catalogue; NO_INDEX: a switch */
    unsigned line;   /* where it is first named */
    bool is_defined; /* named by a line of its own, not just as another's child */
    double ports;    /* NICs below */
    uint32_t domain; /* host: of the tree's domains; NO_INDEX: none is known */
} tree_node;

/** Hosts whose devices share a switch, such as the trays of an NVL72. */
typedef struct tree_domain {
    char *name;
    uint32_t hosts, vertex;
} tree_domain;

/** Names are unique among nodes; a hash table finds them. Zero-initialise, but for `im`. */
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
/** The node of that name, made where there is none. Valid until the next is made. */
ty_status tree_node_of(tree *t, const char *name, unsigned line, uint32_t *node,
                       ty_error *error) TY_MUST_CHECK;
/** The node of that name; NO_INDEX where there is none. */
uint32_t tree_find(const tree *t, const char *name);
/** The domain of that name, made where there is none. */
ty_status tree_domain_of(tree *t, const char *name, uint32_t *domain,
                         ty_error *error) TY_MUST_CHECK;
/** The kind of host of the options; of a rack that is drawn as one host, its trays, noted. */
uint32_t tree_host(tree *t);
/** Puts a node below a switch; refused below two different ones. */
ty_status tree_hang(tree *t, uint32_t node, uint32_t parent, unsigned line,
                    ty_error *error) TY_MUST_CHECK;
/**
 * Into the cluster: switches, and hosts behind them. Uplinks carry what is below, divided by the
 * oversubscription of the options. Several roots are refused, naming them, unless the options name
 * one.
 * @param joint name of a switch that joins several roots; NULL: refused
 */
ty_status tree_build(tree *t, const char *joint, ty_error *error) TY_MUST_CHECK;

#endif
