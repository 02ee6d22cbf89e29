# cpack -G DEB: five packages; cpack -G TGZ: one archive that may lie anywhere, as programs look for their
# data beside themselves. What a package needs of others is found out by dpkg-shlibdeps.
set(CPACK_PACKAGE_NAME trainyard)
set(CPACK_PACKAGE_VENDOR Trainyard)
# Whoever makes packages signs them, as with Debian's own tools.
if(DEFINED ENV{DEBEMAIL} AND DEFINED ENV{DEBFULLNAME})
    set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
else()
    set(CPACK_PACKAGE_CONTACT "Trainyard <trainyard@localhost>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plans of distributed training, simulated and run")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/pack_manual.cmake)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_RELEASE 0.1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_WORKER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL program dev doc)
if(TY_WITH_EXECUTE)
    list(APPEND CPACK_COMPONENTS_ALL worker)
endif()
if(TARGET trainyard_shared)
    list(APPEND CPACK_COMPONENTS_ALL python)
endif()

# ty_package(COMPONENT NAME SECTION SUMMARY DESCRIPTION [DEPENDS...])
function(ty_package component name section summary description)
    string(TOUPPER ${component} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
    set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
    set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
    string(JOIN ", " depends ${ARGN})
    set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
endfunction()
set(ty_own "(= ${PROJECT_VERSION}-0.1)")
ty_package(program trainyard science "planner and simulator of distributed training"
    "Finds the best way to train a neural network on a cluster, says what limits\nit, and plays it on a simulated network.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "trainyard-worker, trainyard-doc")
ty_package(worker trainyard-worker science "worker of trainyard, which trains for real"
    "Runs the plans of trainyard on this machine's processors and measures them." "trainyard ${ty_own}" openmpi-bin)
set(CPACK_DEBIAN_WORKER_PACKAGE_RECOMMENDS dataset-fashion-mnist) # what demo and the small networks train on
ty_package(dev libtrainyard-dev libdevel "headers and archives of trainyard"
    "The library under the program, for programs in C." "trainyard ${ty_own}" libcjson-dev libmd-dev libigraph-dev
    libxml2-dev libyaml-dev zlib1g-dev)
ty_package(doc trainyard-doc doc "pages of trainyard"
    "What its models are, how far they are right, tutorials and file formats.")
set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)
ty_package(python python3-trainyard python "trainyard from Python"
    "The questions of the program as functions, its documents as objects." "trainyard ${ty_own}" python3)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS python3-pandas)

# What is loaded and not linked, dpkg-shlibdeps does not see.
find_program(TY_DPKG_QUERY dpkg-query)
if(TY_WITH_SIMULATE AND TY_DPKG_QUERY)
    execute_process(COMMAND ${TY_DPKG_QUERY} -S ${TY_SIMGRID_PATH} OUTPUT_VARIABLE ty_owner ERROR_QUIET)
    if(ty_owner MATCHES "^([^:, ]+)")
        set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS ${CMAKE_MATCH_1})
        string(APPEND CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS ", ${CMAKE_MATCH_1}")
    endif()
endif()

# What Debian's policy wants of every package: its licence and its changes in its own folder.
string(TIMESTAMP ty_date "%a, %d %b %Y 00:00:00 +0000" UTC)
file(WRITE ${PROJECT_BINARY_DIR}/packages/changelog "trainyard (${PROJECT_VERSION}-0.1) unstable; urgency=medium

  * Version ${PROJECT_VERSION}.

 -- ${CPACK_PACKAGE_CONTACT}  ${ty_date}
")
find_program(TY_GZIP gzip)
if(TY_GZIP)
    execute_process(COMMAND ${TY_GZIP} -9nkf ${PROJECT_BINARY_DIR}/packages/changelog)
    foreach(pair program:trainyard worker:trainyard-worker dev:libtrainyard-dev doc:trainyard-doc python:python3-trainyard)
        string(REPLACE ":" ";" pair ${pair})
        list(GET pair 0 component)
        list(GET pair 1 name)
        if(component IN_LIST CPACK_COMPONENTS_ALL)
            install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
                RENAME copyright COMPONENT ${component})
            install(FILES ${PROJECT_BINARY_DIR}/packages/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
                RENAME changelog.Debian.gz COMPONENT ${component} EXCLUDE_FROM_ALL)
        endif()
    endforeach()
endif()
include(CPack)
