/* Common part of Slurm's topology.conf and topology.yaml: switches or blocks, and lists of their
 * children. They name neither devices nor rates: hosts come from the options, and uplinks are as
 * wide as the links below. */
#ifndef TY_IMPORT_SLURM_H
#define TY_IMPORT_SLURM_H

#include "import_tree.h"

typedef struct slurm_tree {
    tree tree;
    uint32_t parent; /* current switch, the parent of names */
    uint32_t domain; /* of the nodes' block; NO_INDEX below a switch */
    bool are_nodes;  /* names are of nodes, not switches */
    unsigned line;   /* for messages; set by the reader */
    uint32_t blocks, switches;
    bool has_speeds, has_sizes; /* link speeds, block sizes: read and ignored */
} slurm_tree;

ty_status slurm_tree_open(slurm_tree *s, importer *im, ty_error *error) TY_MUST_CHECK;
void slurm_tree_close(slurm_tree *s);
/** Starts a switch or block, the parent of later names. */
ty_status slurm_tree_switch(slurm_tree *s, const char *name, size_t length, bool is_block,
                            ty_error *error) TY_MUST_CHECK;
/** Adds nodes or switches below the last switch, as a host list: "node[01-04,07]". */
ty_status slurm_tree_below(slurm_tree *s, const char *list, size_t length, bool are_nodes,
                           ty_error *error) TY_MUST_CHECK;
/** Checks that every switch is defined, notes assumptions, and builds the cluster. */
ty_status slurm_tree_build(slurm_tree *s, ty_error *error) TY_MUST_CHECK;

#endif
