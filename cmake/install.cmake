# What other programs need of an installed Trainyard: archives, headers, data, and how to find them.
include(CMakePackageConfigHelpers)
set(ty_library_modules core workloads topologies planner simulate study reports)
set(ty_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Trainyard)
set(TRAINYARD_DATA_DIR ${CMAKE_INSTALL_DATADIR}/trainyard)
foreach(module ${ty_library_modules})
    set_target_properties(trainyard_${module} PROPERTIES EXPORT_NAME ${module})
    install(TARGETS trainyard_${module} EXPORT Trainyard ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${module}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trainyard COMPONENT dev
        FILES_MATCHING PATTERN "ty_*.h" PATTERN "launch" EXCLUDE PATTERN "catalogue" EXCLUDE PATTERN "zoo" EXCLUDE
        PATTERN "families" EXCLUDE PATTERN "training" EXCLUDE)
endforeach()
set_target_properties(trainyard_yml PROPERTIES EXPORT_NAME yml)
install(TARGETS trainyard_yml EXPORT Trainyard ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT Trainyard FILE TrainyardTargets.cmake NAMESPACE trainyard:: DESTINATION ${ty_package_folder}
    COMPONENT dev)
configure_package_config_file(cmake/TrainyardConfig.cmake.in ${PROJECT_BINARY_DIR}/TrainyardConfig.cmake
    INSTALL_DESTINATION ${ty_package_folder} PATH_VARS TRAINYARD_DATA_DIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TrainyardConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TrainyardConfig.cmake ${PROJECT_BINARY_DIR}/TrainyardConfigVersion.cmake
    DESTINATION ${ty_package_folder} COMPONENT dev)

file(RELATIVE_PATH TY_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/trainyard.pc.in trainyard.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/trainyard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

install(FILES workloads/aliases.json DESTINATION ${TRAINYARD_DATA_DIR}/workloads)
install(DIRECTORY workloads/families workloads/training workloads/zoo DESTINATION ${TRAINYARD_DATA_DIR}/workloads)
install(DIRECTORY docs/schemas DESTINATION ${TRAINYARD_DATA_DIR})
install(DIRECTORY docs/examples docs/images DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT doc)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc
    FILES_MATCHING PATTERN "*.md" PATTERN schemas EXCLUDE PATTERN examples EXCLUDE PATTERN images EXCLUDE)
# The package goes where python3 looks for modules below the prefix, which is known when it is installed:
# Debian's /usr has another folder than its /usr/local and than ~/.local. Elsewhere PYTHONPATH names it.
if(TARGET trainyard_shared)
    install(SCRIPT cmake/python_folder.cmake COMPONENT python)
    install(DIRECTORY python/trainyard DESTINATION "\${ty_python_folder}" COMPONENT python
        FILES_MATCHING PATTERN "*.py")
endif()
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)

# What an installation has put somewhere goes again, by its list; folders that are empty then, too.
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
    -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake VERBATIM)
include(${CMAKE_CURRENT_LIST_DIR}/packages.cmake)
