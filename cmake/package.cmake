# package.cmake -- how other projects find the installed library: find_package(Plimsoll) and
# pkg-config.  Both find it relative to their own files: an installed tree can be moved.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Plimsoll)

# Two sets, because only the static library needs zlib of those who link it.
foreach(kind shared static)
    install(TARGETS plimsoll_${kind} EXPORT plimsoll_${kind})
    install(EXPORT plimsoll_${kind} NAMESPACE Plimsoll:: DESTINATION ${package_dir}
            FILE plimsoll_${kind}.cmake)
endforeach()
configure_package_config_file(cmake/PlimsollConfig.cmake.in PlimsollConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(PlimsollConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/PlimsollConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/PlimsollConfigVersion.cmake
        DESTINATION ${package_dir})

set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix /prefix/${pc_dir} /prefix)
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
configure_file(cmake/plimsoll.pc.in plimsoll.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/plimsoll.pc DESTINATION ${pc_dir})
