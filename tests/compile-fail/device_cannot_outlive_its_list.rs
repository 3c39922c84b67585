//! Devices that were not opened go with the list.

use sideway::ibverbs::device::DeviceList;

fn keep(list: DeviceList) {
    let device = list.get(0).unwrap();
    drop(list);
    drop(device.open());
}

fn main() {}
