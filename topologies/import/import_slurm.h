/* What Slurm's topology.conf and topology.yaml share: switches or blocks, and lists of what is
 * below them. They name neither devices nor rates: hosts are those of the options, uplinks as wide
 * as what is below. */
#ifndef TY_IMPORT_SLURM_H
#define TY_IMPORT_SLURM_H

#include "import_tree.h"

typedef struct slurm_tree {
    tree tree;
    uint32_t parent; /* switch that names are hung below */
    uint32_t domain; /* of the block that nodes are hung below; NO_INDEX below a switch */
    bool are_nodes;  /* names are of nodes, not switches */
    unsigned line;   /* for messages; set by the reader */
    uint32_t blocks, switches;
    bool has_speeds, has_sizes; /* link speeds, block sizes: read and left out */
} slurm_tree;

ty_status slurm_tree_open(slurm_tree *s, importer *im, ty_error *error) TY_MUST_CHECK;
void slurm_tree_close(slurm_tree *s);
/** A switch or block; what follows is hung below it. */
ty_status slurm_tree_switch(slurm_tree *s, const char *name, size_t length, bool is_block,
                            ty_error *error) TY_MUST_CHECK;
/** Nodes or switches below the last switch, as a list of hosts: "node[01-04,07]". */
ty_status slurm_tree_below(slurm_tree *s, const char *list, size_t length, bool are_nodes,
                           ty_error *error) TY_MUST_CHECK;
/** Checks that every switch is defined, notes what is assumed, and builds. */
ty_status slurm_tree_build(slurm_tree *s, ty_error *error) TY_MUST_CHECK;

#endif
